"""The example of docs/extending.md runs as it stands, only smaller."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from grue.agents import gating
from grue.agents.registry import AGENTS
from grue.training.config import CHOICES

PAGE = Path(__file__).parents[1] / "docs" / "extending.md"
SMALLER = (
    "steps=1_200, metrics_every=200, average_over=400, target_every=200, learning_starts=200, "
    "encoder=8, context=8, hidden=8, batch_size=4, replay_steps=2_000"
)


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gating, "GATES", dict(gating.GATES))
    monkeypatch.setattr("grue.agents.targets.GATES", gating.GATES)
    monkeypatch.setitem(CHOICES, "gate", gating.GATES)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    code = code.replace('gate="likelier-half")', f'gate="likelier-half", {SMALLER})')
    names: dict = {}
    try:
        exec(compile(code, str(PAGE), "exec"), names)
    finally:
        AGENTS.pop("bag", None)
    assert names["steps"].tolist() == [200, 400, 600, 800, 1000, 1200]
    assert np.isfinite(names["fraction"]).all()
    run = names["result"].runs[0]
    assert (tmp_path / "runs" / "saladworld-1-bag-likelier-half-seed0" / "config.json").is_file()
    # Half of the eight commands, but for the times when the gate steps aside.
    assert run.metrics["candidates"][-1] < 5.5
    assert run.metrics["q_loss"][1:].min() > 0
