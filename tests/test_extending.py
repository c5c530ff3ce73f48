"""The example of docs/extending.md runs as it stands, only smaller; so does its command line."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from grue.agents.gating import GATES, register
from grue.agents.registry import AGENTS
from grue.cli import entry

PAGE = Path(__file__).parents[1] / "docs" / "extending.md"
SMALLER = (
    "steps=1_200, metrics_every=200, average_over=400, target_every=200, learning_starts=200, "
    "encoder=8, context=8, hidden=8, batch_size=4, replay_steps=2_000"
)
NAME = "saladworld-1-bag-likelier-half-seed0"


def forget() -> None:
    """As if the example had never been imported."""
    AGENTS.remove("bag")
    GATES.remove("likelier-half")
    sys.modules.pop("my_agents", None)


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The page's file, in the current folder, and its program."""
    file, program = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "my_agents.py").write_text(file)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield program.replace('gate="likelier-half")', f'gate="likelier-half", {SMALLER})')
    forget()


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert entry.main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_the_page(example: str, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    names: dict = {}
    exec(compile(example, str(PAGE), "exec"), names)
    assert names["steps"].tolist() == [200, 400, 600, 800, 1000, 1200]
    assert np.isfinite(names["fraction"]).all()
    run = names["result"].runs[0]
    assert (Path("runs") / NAME / "config.json").is_file()
    # Half of the eight commands, but for the times when the gate steps aside.
    assert run.metrics["candidates"][-1] < 5.5
    assert run.metrics["q_loss"][1:].min() > 0

    forget()
    says = f"{NAME}/config.json: there is no agent 'bag'; there are tabular, "
    for command in ("eval", "report"):
        told = complaint(capsys, command, "runs")
        assert says in told
        assert "if it is your own, name the file that registers it in GRUE_IMPORT" in told
    assert "there is no gate 'likelier-half'" in complaint(
        capsys, "train", "saladworld-1", "--gate", "likelier-half"
    )

    monkeypatch.setenv("GRUE_IMPORT", " my_agents,")
    # Another gate before it: the run's own has another number than the checkpoint has.
    register("before", GATES["none"])
    try:
        assert entry.main(["eval", "runs", "--greedy", "--transcript"]) == 0
    finally:
        forget()
        GATES.remove("before")
    shown = capsys.readouterr().out
    assert " · 4 candidates · " in shown
    assert " · 8 candidates · " not in shown
    settings = [word for text in SMALLER.split(", ") for word in ("--set", text)]
    words = ["train", "saladworld-1", "--agent", "bag", "--gate", "likelier-half", "--resume"]
    assert entry.main([*words, *settings]) == 0
    assert NAME in capsys.readouterr().out
    assert "my_agents" in sys.modules


def test_a_file_is_imported_once(example: str, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    path = Path("elsewhere") / "my_agents.py"
    path.parent.mkdir()
    Path("my_agents.py").rename(path)
    (path.parent / "beside.py").write_text("")
    path.write_text(f"import beside\nprint('imported')\n{path.read_text()}")
    monkeypatch.setenv("GRUE_IMPORT", str(path))
    for shown in ("imported\n", ""):
        assert entry.main(["games", "--json"]) == 0
        assert capsys.readouterr().out.partition("[")[0] == shown
    assert "bag" in AGENTS
    assert "likelier-half" in GATES
    sys.modules.pop("beside")


@pytest.mark.parametrize(
    ("name", "code", "why"),
    [
        ("no_such", None, "ModuleNotFoundError: No module named 'no_such'"),
        ("no/such.py", None, "FileNotFoundError: there is no such file"),
        ("own_a.py", "x = 1\ny = z", "NameError: name 'z' is not defined at {}/own_a.py:2"),
        ("own_b", "import torchx", "No module named 'torchx' at {}/own_b.py:1"),
        ("own_c.py", "x = (", "SyntaxError: '(' was never closed (own_c.py, line 1)"),
        ("own_d.py", "raise SystemExit(3)", "SystemExit: 3 at {}/own_d.py:1"),
        ("json.py", "x = 1", "ImportError: there is another module json, give the file another"),
    ],
)
def test_what_cannot_be_imported(
    name: str,
    code: str | None,
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("GRUE_IMPORT", name)
    if code is not None:
        Path(name).with_suffix(".py").write_text(code)
    told = complaint(capsys, "games")
    assert told.startswith(f"grue: GRUE_IMPORT names {name}, which cannot be imported (")
    assert why.format(tmp_path) in told
    assert told.endswith("paths of .py files, with commas between")
    assert entry.main(["--version"]) == 0
