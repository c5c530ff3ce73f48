"""The example of docs/extending.md runs as it stands, only smaller; so does its command line."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from small_runs import same

from grue.agents.gating import GATES, register
from grue.agents.registry import AGENTS
from grue.cli import entry

PAGE = Path(__file__).parents[1] / "docs" / "extending.md"
SMALLER = (
    "steps=1_200, metrics_every=200, average_over=400, target_every=200, learning_starts=200, "
    "encoder=8, context=8, hidden=8, batch_size=4, replay_steps=2_000"
)
NAME = "saladworld-1-novelty-likelier-half-seed0"


def forget() -> None:
    """As if the example had never been imported."""
    AGENTS.remove("novelty")
    GATES.remove("likelier-half")
    sys.modules.pop("my_agents", None)


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The page's file, in the current folder, and its program."""
    file, program = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "my_agents.py").write_text(file)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert len(file.splitlines()) <= 100
    yield program.replace("novelty=0.2\n)", f"novelty=0.2, {SMALLER}\n)")
    forget()


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert entry.main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def arguments(out: str, *more: str) -> list[str]:
    """The page's run at the command line."""
    settings = [word for text in SMALLER.split(", ") for word in ("--set", text)]
    parts = ["--agent", "novelty", "--gate", "likelier-half", "--set", "novelty=0.2"]
    return ["train", "saladworld-1", *parts, *settings, "--out", out, *more]


def test_the_page(example: str, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    names: dict = {}
    exec(compile(example, str(PAGE), "exec"), names)
    assert names["steps"].tolist() == [200, 400, 600, 800, 1000, 1200]
    run = names["result"].runs[0]
    assert run.config.novelty == 0.2
    assert run.config.novelty_slots == 4096
    # The column of its own: texts become known, and the bonus of a step stays within β.
    bonus = run.metrics["bonus"]
    assert 0 < bonus[-1] < bonus[0] < 0.2
    # Half of the eight commands, but for the times when the gate steps aside.
    assert run.metrics["candidates"][-1] < 5.5
    assert run.metrics["q_loss"][1:].min() > 0
    with np.load(Path("runs") / NAME / "checkpoint" / "step-000001200.npz") as saved:
        slots = saved["agent/kept/replay/stored/fields/slot"]
        counts = saved["agent/kept/own"]
    # Every step has its field and was counted once.
    assert slots.max() < 4096
    assert counts.sum() == 1200
    assert set(np.flatnonzero(counts)) >= set(slots[:1000].tolist())

    forget()
    says = f"{NAME}/config.json: there is no agent 'novelty'; there are tabular, "
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


def test_the_page_at_the_command_line(
    example: str, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setenv("GRUE_IMPORT", "my_agents")
    assert entry.main(["agents"]) == 0
    listed = capsys.readouterr().out
    assert "sc on bags of words, with a bonus for new texts" in listed
    assert "β: the bonus of a text seen for the first time" in listed
    wrong = complaint(capsys, *arguments("runs", "--set", "novelti=1"))
    assert "there is no setting 'novelti'; the nearest is 'novelty'" in wrong
    assert "novelty must be at least 0, not -1.0" in complaint(
        capsys, *(word.replace("0.2", "-1") for word in arguments("runs"))
    )
    # Stopped and resumed it ends with the same bits as in one go.
    longer = [word.replace("steps=1_200", "steps=1_600") for word in arguments("runs", "--resume")]
    assert entry.main(arguments("runs")) == 0
    assert entry.main(longer) == 0
    assert entry.main([*longer[:-1], "--out", "whole"]) == 0
    same(Path("runs") / NAME, Path("whole") / NAME)
    capsys.readouterr()
    assert entry.main(["report", "runs", "-o", "page.html"]) == 0
    page = Path("page.html").read_text()
    assert "novelty slots" in page
    assert "4,096" in page


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
    assert "novelty" in AGENTS
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
