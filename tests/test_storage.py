"""Run folders at an address of fsspec: sent whole, fetched, and trained on from another machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_runs import same_results

from grue.cli import entry
from grue.errors import GrueError
from grue.experiments import storage
from grue.experiments.storage import Storage

pytest.importorskip("fsspec", reason="the extra ray is not installed")

NAME = "saladworld-1-tabular-none-seed0"
STEPS = 400_000


@pytest.fixture(autouse=True)
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(storage.COPIES, str(tmp_path / "copies"))
    return tmp_path / "copies"


@pytest.fixture(params=["file", "memory"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"file://{tmp_path}/bucket" if request.param == "file" else f"memory://{tmp_path.name}"


@pytest.mark.parametrize(
    ("out", "found"),
    [
        ("runs", None),
        ("/shared/runs", None),
        ("C:runs", None),
        (Path("s3://bucket/runs"), "s3://bucket/runs"),
        ("s3://bucket/runs/", "s3://bucket/runs"),
        (Path("file:///shared/runs"), "file:///shared/runs"),
        (Path("memory://runs"), "memory://runs"),
    ],
)
def test_addresses(out: Path | str, found: str | None) -> None:
    assert storage.address_in(out) == found


def test_a_copy_knows_its_address(tmp_path: Path) -> None:
    folder = storage.copy_of("s3://bucket/a")
    assert folder == storage.copy_of("s3://bucket/a") != storage.copy_of("s3://bucket/b")
    assert storage.address_at(folder) == "s3://bucket/a"
    assert storage.address_at(folder / "runs") == "s3://bucket/a/runs"
    assert storage.folder_at(storage.place_of(folder / "runs")) == folder / "runs"
    assert storage.address_at(tmp_path) is None
    assert storage.folder_at(storage.place_of(tmp_path)) == tmp_path


def written(folder: Path, rows: int, *steps: int) -> Path:
    (folder / "checkpoint").mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{}")
    (folder / "metrics.jsonl").write_text("row\n" * rows)
    for path in (folder / "checkpoint").iterdir():
        path.unlink()
    for step in steps:
        (folder / "checkpoint" / f"step-{step:09}.npz").write_text(f"weights {step}")
    return folder


def content(folder: Path) -> dict[str, str]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text() for path in paths}


def test_a_run_is_sent_and_fetched(address: str, tmp_path: Path) -> None:
    there = Storage(address)
    here = written(tmp_path / "here", 3, 100, 200)
    (here / ".metrics.jsonl.1.partial").write_text("unfinished")
    there.send("a", here)
    assert there.runs() == ["a"]
    there.fetch("a", tmp_path / "other")
    assert sorted(content(tmp_path / "other")) == [
        "checkpoint/step-000000100.npz", "checkpoint/step-000000200.npz", "config.json",
        "metrics.jsonl",
    ]  # fmt: skip
    # The next checkpoint: what is no longer named is deleted, there and where it is fetched.
    there.send("a", written(here, 5, 200, 300))
    assert there.sent("a")["metrics.jsonl"] == 20
    assert not there.exists("a/checkpoint/step-000000100.npz")
    there.fetch("a", tmp_path / "other")
    assert content(tmp_path / "other")["checkpoint/step-000000300.npz"] == "weights 300"
    assert content(tmp_path / "other")["metrics.jsonl"] == "row\n" * 5
    # What is here and further stays.
    written(tmp_path / "other", 9, 400)
    there.fetch("a", tmp_path / "other")
    assert content(tmp_path / "other")["metrics.jsonl"] == "row\n" * 9


def test_a_sender_that_dies_leaves_the_run_as_it_was(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Storage(address)
    here = written(tmp_path / "here", 3, 100)
    there.send("a", here)
    write = Storage.write
    for files in range(1, 4):  # It dies after so many files.
        left = iter([True] * files)

        def dying(self: Storage, name: str, content: bytes, left: object = left) -> None:
            if not next(left, False):  # type: ignore[call-overload]
                raise KeyboardInterrupt
            write(self, name, content)

        monkeypatch.setattr(Storage, "write", dying)
        with pytest.raises(KeyboardInterrupt):
            there.send("a", written(here, 3 + files, 100 + files))
        monkeypatch.setattr(Storage, "write", write)
        there.fetch("a", tmp_path / f"other{files}")
        assert content(tmp_path / f"other{files}") == {
            "config.json": "{}",
            "metrics.jsonl": "row\n" * 3,
            "checkpoint/step-000000100.npz": "weights 100",
        }


def command(out: Path | str, *more: str) -> list[str]:
    values = {"learning_starts": STEPS, "table_rows": 4096, "metrics_every": 500}
    given = [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
    start = ["train", "saladworld-1", "--agent", "tabular", "--steps", str(STEPS), "--out"]
    return [*start, str(out), *given, "--checkpoint-seconds", "0.2", *more]


def test_a_killed_run_goes_on_from_another_machine(
    tmp_path: Path, copies: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first machine is lost with its copy; the second knows the address only."""
    address, bucket = f"file://{tmp_path}/bucket", tmp_path / "bucket"
    first = subprocess.Popen(
        [sys.executable, "-m", "grue.cli", *command(address)], stderr=subprocess.PIPE
    )
    until = time.monotonic() + 300
    while not (bucket / NAME / storage.SENT).exists():
        assert time.monotonic() < until
        assert first.poll() is None, first.communicate()
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    sent = json.loads((bucket / NAME / storage.SENT).read_text())
    reached = max(name for name in sent if name.startswith("checkpoint/"))
    assert "step-000000000" < reached.removeprefix("checkpoint/") < f"step-{STEPS:09}"
    copies.rename(tmp_path / "lost")
    assert entry.main(command(address)) == 2  # It is there: --resume is asked for.
    assert entry.main(command(address, "--resume")) == 0
    assert entry.main(command(tmp_path / "plain")) == 0
    same_results(bucket / NAME, tmp_path / "plain" / NAME)
    # A third one, which has nothing, reads the same.
    monkeypatch.setenv(storage.COPIES, str(tmp_path / "third"))
    same_results(storage.fetched(Path(address)) / NAME, bucket / NAME)


def test_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(command("nowhere://bucket")) == 2
    (told,) = capsys.readouterr().err.splitlines()
    assert told.startswith("grue: nowhere://bucket cannot be used: Protocol not known: nowhere")
    (tmp_path / "bucket").write_text("a file")
    assert entry.main(command(f"file://{tmp_path}/bucket")) == 1
    (told,) = capsys.readouterr().err.splitlines()
    assert told.startswith(f"grue: file://{tmp_path}/bucket does not answer: ")
    with pytest.raises(GrueError, match="does not answer"):
        Storage(f"file://{tmp_path}/bucket").write("a", b"")
    assert os.listdir(tmp_path) == ["bucket"]
