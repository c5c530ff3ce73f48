"""What is refused leaves every byte as it was, and damage is told in one line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from grue.cli import entry

NAME = "saladworld-1-tabular-none-seed0"
TRAIN = ["train", "saladworld-1", "--agent", "tabular", "--set", "metrics_every=100"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained")
    assert entry.main([*TRAIN, "--steps", "500", "--out", str(out)]) == 0
    return out


@pytest.fixture
def out(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "out"))


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def refused(arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of a command that fails."""
    assert entry.main(arguments) == code
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1, lines
    return lines[0]


# A refused resume changes nothing


def test_a_damaged_checkpoint(out: Path, capsys) -> None:
    [path] = (out / NAME / "checkpoint").iterdir()
    whole = path.read_bytes()
    middle = len(whole) // 2
    path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    before = contents(out)
    said = refused([*TRAIN, "--steps", "700", "--resume", "--out", str(out)], 1, capsys)
    assert "is damaged" in said
    assert contents(out) == before
    # The first command is not refused either.
    assert entry.main([*TRAIN, "--steps", "500", "--resume", "--out", str(out)]) == 0


def test_a_checkpoint_under_another_name(out: Path, capsys) -> None:
    [path] = (out / NAME / "checkpoint").iterdir()
    path.rename(path.with_name("step-000000400.npz"))
    before = contents(out)
    said = refused([*TRAIN, "--steps", "700", "--resume", "--out", str(out)], 1, capsys)
    assert "its header says step 500" in said
    assert contents(out) == before


def test_all_runs_are_read_before_one_is_changed(out: Path, capsys) -> None:
    """The second run of a command is damaged, and the first stays as it was."""
    options = [*TRAIN, "--one-by-one", "--out", str(out), "--resume"]
    assert entry.main([*options, "--steps", "500", "--seeds", "0,1"]) == 0
    [path] = (out / NAME.replace("seed0", "seed1") / "checkpoint").iterdir()
    path.write_bytes(path.read_bytes()[:-100])
    capsys.readouterr()
    before = contents(out)
    assert "damaged" in refused([*options, "--steps", "700", "--seeds", "0,1"], 1, capsys)
    assert contents(out) == before


# Rows of metrics


@pytest.mark.parametrize("line", [0, 2, 4])
def test_a_missing_row(line: int, out: Path, capsys) -> None:
    path = out / NAME / "metrics.jsonl"
    rows = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(rows[:line] + rows[line + 1 :]))
    before = contents(out)
    said = refused([*TRAIN, "--steps", "700", "--resume", "--out", str(out)], 1, capsys)
    if line < 4:
        assert f"line {line + 1} is damaged (its step is {100 * (line + 2)}, not " in said
        assert "line" in refused(["report", str(out), "-o", str(out / "page.html")], 1, capsys)
    else:
        assert "ends at step 400, before the checkpoint of step 500" in said
    assert contents(out) == before


def test_a_row_of_another_run(out: Path, capsys) -> None:
    path = out / NAME / "metrics.jsonl"
    path.write_text(path.read_text().replace('"seed": 0', '"seed": 3', 1))
    said = refused([*TRAIN, "--steps", "700", "--resume", "--out", str(out)], 1, capsys)
    assert "line 1 is damaged (its seed is 3, not 0" in said
