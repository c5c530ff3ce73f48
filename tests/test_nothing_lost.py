"""What is refused leaves every byte as it was, and damage is told in one line."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import grue
from grue.agents.kernels.select import Compilation
from grue.cli import entry
from grue.experiments.records import records_in
from grue.games.compiled_tables import HEADER, TABLES, check
from grue.games.gamefile import compiled_path, load_compiled
from grue.training import memory, pieces, runs, trainer
from grue.training.checkpoint import saved_steps
from grue.training.runs import read_rows, run_folders

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


def refused(
    arguments: list[str], code: int, capsys: pytest.CaptureFixture[str], last: bool = False
) -> str:
    """The one line of a command that fails, or the last one."""
    assert entry.main(arguments) == code
    lines = capsys.readouterr().err.splitlines()
    assert last or len(lines) == 1, lines
    return lines[-1]


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


def test_a_finished_run_is_finished(out: Path, capsys) -> None:
    """Also where games of a folder would have been played meanwhile."""
    often = ["--set", "valid_every=100"]
    own = out / "own"
    assert entry.main([*TRAIN, *often, "--steps", "500", "--out", str(own)]) == 0
    before = contents(own)
    assert entry.main([*TRAIN, *often, "--steps", "500", "--resume", "--out", str(own)]) == 0
    assert "is finished: 500 steps" in capsys.readouterr().err
    assert contents(own) == before


def test_a_missing_row_of_a_finished_run(out: Path, capsys) -> None:
    path = out / NAME / "metrics.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:]))
    before = contents(out)
    said = refused([*TRAIN, "--steps", "500", "--resume", "--out", str(out)], 1, capsys)
    assert "line 1 is damaged (its step is 200, not 100" in said
    assert contents(out) == before


def test_a_row_of_another_run(out: Path, capsys) -> None:
    path = out / NAME / "metrics.jsonl"
    path.write_text(path.read_text().replace('"seed": 0', '"seed": 3', 1))
    said = refused([*TRAIN, "--steps", "700", "--resume", "--out", str(out)], 1, capsys)
    assert "line 1 is damaged (its seed is 3, not 0" in said


# Signals in the middle of a row


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_in_a_row(number: int, trained: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    """The row's sums are kept with the checkpoint, so that the run ends as if never stopped."""
    ended: list[int] = []

    def took(self: pieces.Pieces, steps: int, seconds: float) -> None:
        ended.append(steps)
        self.steps = 8
        if len(ended) == 20:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(pieces.Pieces, "took", took)
    command = [*TRAIN, "--steps", "500", "--out", str(tmp_path)]
    said = refused(command, 130, capsys, last=True)
    assert said.startswith(f"grue: interrupted at step {sum(ended)} of 500; ")
    assert sum(ended) % 100 != 0
    folder = tmp_path / NAME
    assert [path.name for path in (folder / "checkpoint").iterdir()] == [
        f"step-{sum(ended):09}.npz"
    ]
    assert len(read_rows(folder)) == sum(ended) // 100
    assert entry.main(["eval", str(folder), "--greedy"]) == 0
    assert entry.main([*command, "--resume"]) == 0
    for name in ("metrics.jsonl", "checkpoint/step-000000500.npz"):
        assert (folder / name).read_bytes() == (trained / NAME / name).read_bytes()


def test_a_kill_in_a_row(trained: Path, tmp_path: Path, monkeypatch) -> None:
    """Checkpoints are written within a row that takes longer than the time between them."""
    ended: list[int] = []

    def took(self: pieces.Pieces, steps: int, seconds: float) -> None:
        ended.append(steps)
        self.steps = 8
        if len(ended) == 20:
            raise MemoryError  # Nothing more is written, as after SIGKILL.

    command = [*TRAIN, "--steps", "500", "--out", str(tmp_path), "--checkpoint-seconds", "0"]
    with monkeypatch.context() as patched:
        patched.setattr(pieces.Pieces, "took", took)
        patched.setattr(trainer, "LEAST_IN_A_ROW", 0.0)
        assert entry.main(command) != 0
    saved = saved_steps(tmp_path / NAME / "checkpoint")
    assert saved[-1] == sum(ended[:-1])
    assert saved[-1] % 100 != 0
    assert entry.main([*command, "--resume"]) == 0
    for name in ("metrics.jsonl", "checkpoint/step-000000500.npz"):
        assert (tmp_path / NAME / name).read_bytes() == (trained / NAME / name).read_bytes()


def test_pieces_take_about_a_second(monkeypatch) -> None:
    config = grue.TrainConfig(metrics_every=20_000, target_every=1_000, learning_starts=20_000)
    cut = pieces.Pieces(config)
    assert cut.next(0) == 40  # Ten updates.
    cut.took(40, 30.0)  # With the compiler.
    assert cut.next(40) == 40
    cut.took(40, 0.1)  # 400 steps a second, but not all at once.
    assert cut.next(80) == 160
    cut.took(160, 0.4)
    assert cut.next(240) == 400
    assert cut.next(800) == 200  # Up to a copy of the target.
    cut.took(400, 4.0)
    assert cut.next(0) == 100
    cut.took(4, 100.0)
    assert cut.next(0) == 4
    # On a GPU the length is part of the program.
    monkeypatch.setattr(pieces, "compilation", lambda: Compilation(4, None, True))
    cut = pieces.Pieces(config)
    cut.took(1000, 9.0)
    cut.took(1000, 9.0)
    assert cut.next(3_000) == 1_000
    assert cut.next(3_900) == 100
    wide = grue.TrainConfig(
        metrics_every=1_400, target_every=1_400, learning_starts=1_400, steps=1_400,
        average_over=1_400,
    )  # fmt: skip
    assert pieces.Pieces(wide).next(0) == 700


# Too large


def test_runs_that_do_not_fit(tmp_path: Path, capsys) -> None:
    command = ["train", "saladworld-1", "--out", str(tmp_path / "out"), "--set"]
    said = refused([*command, "batch_size=100000000"], 2, capsys)
    assert "of memory, and " in said
    assert said.endswith("because of batch_size=100000000; choose smaller values")
    said = refused([*command, "heads=1000000"], 2, capsys)
    assert said == "grue: heads must be at most 128, not 1000000"
    tabular = [*command, "table_rows=268435456", "--agent", "tabular", "--seeds", "0-9"]
    said = refused([*tabular, "--together"], 2, capsys)
    assert "because of table_rows=268435456 and 10 runs side by side" in said
    assert not (tmp_path / "out").exists()


def test_what_is_alive_at_once() -> None:
    def program(x: jax.Array) -> jax.Array:
        a = jnp.outer(x, x)  # 400 bytes
        b = a @ a  # 400 more, then a is dead
        c = jnp.sin(b)[:5]  # 400 + 200, then b is dead
        return jax.lax.scan(lambda s, row: (s + 1, row * 2), 0, c)[1].sum()  # stacks 200

    shapes = jax.ShapeDtypeStruct((10,), jnp.float32)
    inside = 80  # What outer makes of x.
    assert 800 <= memory.peak(jax.make_jaxpr(program)(shapes)) <= 1000 + inside
    assert memory.bytes_of({"a": shapes, "b": [jnp.zeros((2, 3), jnp.int8)]}) == 46
    assert [memory.told(n) for n in (12, 1500, 123_456_789, 2e15)] == [
        *("12 bytes", "1.5 kB", "123 MB", "2,000 TB"),
    ]


# Walks that end, and files that are no files


def test_links_in_a_circle(out: Path, capsys) -> None:
    (out / "again").symlink_to(out)
    (out / "more").mkdir()
    (out / "more" / "up").symlink_to(out, target_is_directory=True)
    assert len(run_folders(out)) == 1
    assert len(records_in(out)) == 1
    assert entry.main(["eval", str(out), "--greedy"]) == 0


def test_folders_without_end(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("grue.files.MOST_ENTRIES", 20)
    for number in range(25):
        (tmp_path / f"{number}").mkdir()
    for command in ("eval", "report"):
        assert "holds more than 20 files" in refused([command, str(tmp_path)], 2, capsys)


def test_pipes_and_devices(out: Path, tmp_path: Path, capsys) -> None:
    pipe = tmp_path / "pipe.z5"
    os.mkfifo(pipe)
    for name in ("/dev/zero", str(pipe)):
        assert "is a pipe or a device" in refused(["play", name], 2, capsys)
    [path] = (out / NAME / "checkpoint").iterdir()
    path.unlink()
    os.mkfifo(path)
    said = refused([*TRAIN, "--steps", "700", "--resume", "--out", str(out)], 1, capsys)
    assert "(it is a pipe or a device, not a plain file)" in said


def test_too_many_processes_and_episodes(out: Path, capsys) -> None:
    said = refused(["verify", "saladworld-1", "--steps", "1", "--jobs", "200"], 2, capsys)
    assert "4 for a core, not 200" in said
    for episodes, why in ((10**12, "episodes must be from 1 to 2147483647"), (2**31 - 1, "GB")):
        said = refused(["eval", str(out), "--episodes", str(episodes)], 2, capsys, last=True)
        assert why in said


def test_a_run_without_a_checkpoint_is_left_out(out: Path, capsys) -> None:
    broken = out / NAME.replace("seed0", "seed1")
    shutil.copytree(out / NAME, broken)
    shutil.rmtree(broken / "checkpoint")
    assert entry.main(["eval", str(out), "--greedy"]) == 0
    shown = capsys.readouterr()
    assert f"grue: left out: {broken} has no checkpoint yet" in shown.err
    assert NAME in shown.out
    (broken / "config.json").write_text("{")
    assert entry.main(["eval", str(out), "--greedy"]) == 1
    assert NAME in capsys.readouterr().out


def test_a_run_without_a_checkpoint_begins_anew(out: Path, capsys) -> None:
    shutil.rmtree(out / NAME / "checkpoint")
    assert entry.main([*TRAIN, "--steps", "500", "--resume", "--out", str(out)]) == 0
    assert f"{NAME} has no checkpoint to start from: begins anew" in capsys.readouterr().err


# Damaged game files


def test_game_files(tmp_path: Path, monkeypatch, capsys) -> None:
    level = grue.load("saladworld-1").story
    story = tmp_path / "copy.z8"
    shutil.copy(level, story)
    story.with_suffix(".json").write_text("[" * 100_000)
    assert "is not a TextWorld game file" in refused(["walkthrough", str(story)], 1, capsys)
    data = json.loads(level.with_suffix(".json").read_text())
    story.with_suffix(".json").write_text(json.dumps({**data, "version": None}))
    said = refused(["walkthrough", str(story), "--run"], 1, capsys)
    assert said.endswith("is not a TextWorld game file of version 1, but None")
    rules = {**data["KB"], "logic": data["KB"]["logic"].replace("type ", "tpye ", 1)}
    story.with_suffix(".json").write_text(json.dumps({**data, "KB": rules}))
    said = refused(["walkthrough", str(story), "--run"], 1, capsys)
    assert f"the rules in {story.with_suffix('.json')} cannot be read (Failed" in said
    assert "not UTF-8; rename" in refused(["map", str(tmp_path / "\udcff.z8")], 2, capsys)
    own = tmp_path / "own.py"
    own.write_text("raise BaseException('mine')")
    monkeypatch.setenv("GRUE_IMPORT", str(own))
    assert "cannot be imported (BaseException: mine at" in refused(["agents"], 2, capsys)


def test_compiled_files_with_right_checksums(tmp_path: Path) -> None:
    """Whatever is changed: it is refused, or it is not what the table is about."""
    found = load_compiled(compiled_path(grue.load("saladworld-7")))
    chance = random.Random(0)
    for _ in range(300):
        arrays, header = dict(found.arrays), dict(found.header)
        name = chance.choice(sorted(TABLES))
        array, change = arrays[name].copy(), chance.randrange(5)
        if change == 0:
            del arrays[name]
        elif change == 1:
            arrays[name] = array.astype(np.float32)
        elif change == 2:
            arrays[name] = array[..., None]
        elif change == 3:
            header[chance.choice(sorted(HEADER))] = chance.choice([None, [], -1, 1.5, {}])
        else:
            arrays[name] = np.full_like(array, -3) if array.dtype.kind == "i" else array[:0]
        if change == 4 and (not array.size or name == "quest_reward"):
            continue
        with pytest.raises(ValueError, match=r"."):
            check(header, arrays)


def test_a_file_that_unpacks_to_much(tmp_path: Path) -> None:
    path = tmp_path / "large.grue.npz"
    np.savez_compressed(path, header=np.zeros(2**29, np.uint8))
    assert path.stat().st_size < 2**20
    with pytest.raises(grue.BrokenFileError, match="unpacks to 536871040 bytes"):
        load_compiled(path)


def test_a_changed_table_is_not_played(tmp_path: Path) -> None:
    level = load_compiled(compiled_path(grue.load("saladworld-1")))
    path = tmp_path / "one.grue.npz"
    level.save(path)
    with np.load(path) as archive:
        entries = dict(archive)
    entries["decision_table"] = entries["decision_table"][::-1].copy()
    np.savez_compressed(path, **entries)
    with pytest.raises(grue.BrokenFileError, match="digest"):
        load_compiled(path)


# Messages


def test_messages(tmp_path: Path, capsys) -> None:
    (tmp_path / "file").write_text("")
    said = refused(["reproduce", "sc-gates", "--out", str(tmp_path / "file")], 2, capsys)
    assert said.endswith("file is no folder; give another --out")
    assert "did you mean" not in refused(["map", "saladworld-0"], 2, capsys)
    assert "did you mean zork1" in refused(["map", "zork2"], 2, capsys)
    assert entry.main(["walkthrough", "saladworld-1", "--run"]) == 0
    assert "game won" in capsys.readouterr().out
    for command in ("compile", "verify", "map"):
        assert entry.main([command, "--help"]) == 0
        assert "zork1" not in capsys.readouterr().out


def test_another_process_makes_the_folder_first(trained: Path, tmp_path: Path, monkeypatch) -> None:
    """Its folder is left alone."""
    create = runs.create

    def late(folder: Path, *given: Any) -> None:
        shutil.copytree(trained / NAME, folder)
        create(folder, *given)

    monkeypatch.setattr(runs, "create", late)
    assert entry.main([*TRAIN, "--steps", "500", "--out", str(tmp_path)]) == 2
    assert contents(tmp_path) == contents(trained)
