"""Run folders: what is in them, who may write them, and what is read back."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from made_rows import ABOUT, CONFIG, rows, sums

import grue
from grue.training import checkpoint, metrics, runs
from grue.training.config import names_for
from grue.training.groups import Member
from grue.training.metrics import MetricsRow, make_row
from grue.training.programs import build, parameters_of, resolved
from grue.training.provenance import about, commit_of
from grue.training.runs import RunFolder, create, read_rows, read_run, read_runs, run_name
from grue.training.trainer import _check_unchanged

# Names


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({}, "saladworld-1-sc-masking-seed0"),
        ({"agent": "drqn", "gate": "none", "seeds": (7,)}, "saladworld-1-drqn-none-seed7"),
        ({"priority": False}, "saladworld-1-sc-masking-seed0-no-priority"),
        ({"look_every": 0}, "saladworld-1-sc-masking-seed0-no-look"),
        (
            {"priority": False, "look_every": 0},
            "saladworld-1-sc-masking-seed0-no-priority-no-look",
        ),
        ({"game": "/some/where/lamps.z8"}, "lamps-sc-masking-seed0"),
        ({"game": "a/my.lamps.grue.npz"}, "my.lamps-sc-masking-seed0"),
    ],
)
def test_names_of_runs(values: dict[str, Any], name: str) -> None:
    assert run_name(replace(CONFIG, **values)) == name


# Folders


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "out" / run_name(CONFIG)
    create(path, CONFIG, ABOUT)
    return path


def names(folder: Path) -> set[str]:
    return {child.name for child in folder.iterdir()}


def fill(folder: Path, number: int, save_at: tuple[int, ...] = ()) -> None:
    """Writes rows and checkpoints."""
    writer = RunFolder(folder, 0).begin()
    for row in rows(number):
        writer.write(row)
        if row["step"] in save_at:
            writer.save(row["step"], {"w": np.arange(3)}, {"heads": 5, "together": []})
    writer.close()


def test_a_new_folder(folder: Path) -> None:
    assert names(folder) == {"config.json", "checkpoint"}
    assert names(folder.parent) == {folder.name}
    stored = json.loads((folder / "config.json").read_text())
    assert list(stored) == [*names_for(CONFIG.flat()), "about"]
    assert stored == {**CONFIG.to_json(), "about": ABOUT}
    run = read_run(folder)
    assert (run.config, run.seed, run.about, run.folder) == (CONFIG, 0, ABOUT, folder)
    assert len(run.metrics["step"]) == 0
    assert np.isnan(run.final["score"])


def test_a_folder_is_made_whole_or_not_at_all(tmp_path: Path, monkeypatch) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(runs, "write_config", full)
    with pytest.raises(OSError, match="No space"):
        create(tmp_path / "run", CONFIG, ABOUT)
    assert names(tmp_path) == set()


def test_rows_are_written_and_read(folder: Path) -> None:
    fill(folder, 5)
    assert read_rows(folder) == rows(5)
    assert read_rows(folder, 300) == rows(3)
    text = (folder / "metrics.jsonl").read_text()
    assert text.count("\n") == 5
    # A line that is still being written is no row yet.
    (folder / "metrics.jsonl").write_text(text + text[:40])
    assert read_rows(folder) == rows(5)

    run = read_run(folder)
    steps, curve = run.curve()
    np.testing.assert_array_equal(steps, [100, 200, 300, 400, 500])
    np.testing.assert_array_equal(curve, [0.75] * 5)
    assert run.final["score"] == 7.5
    assert set(run.final) == set(metrics.averaged(CONFIG))


def test_a_damaged_line_is_refused_by_its_number(folder: Path) -> None:
    fill(folder, 3)
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    row = json.loads(lines[1])
    changed = {
        "step is 'x'": row | {"step": "x"},
        "step is None": row | {"step": None},
        "episodes is 1e+30": row | {"episodes": 1e30},
        "score is 'x'": row | {"score": "x"},
        "heads is ['x']": row | {"heads": ["x"]},
    }
    broken = {"it is no row": "{", "step is missing": "[]", "seed is missing": '{"step": 1}'}
    broken |= {reason: json.dumps(values) for reason, values in changed.items()}
    for reason, bad in [*broken.items(), ("it is no row", "5"), ("it is no row", "[" * 100_000)]:
        (folder / "metrics.jsonl").write_text("\n".join([lines[0], bad, lines[2]]) + "\n")
        with pytest.raises(grue.BrokenFileError) as caught:
            read_rows(folder)
        assert f"metrics.jsonl, line 2 is damaged ({reason})" in str(caught.value)
    longer = json.dumps(row | {"heads": [*row["heads"], 0.5]})
    (folder / "metrics.jsonl").write_text("\n".join([lines[0], longer, lines[2]]) + "\n")
    with pytest.raises(grue.BrokenFileError, match=r"line 2 is damaged \(heads is "):
        read_run(folder)


def test_a_folder_is_taken_back_to_a_step(folder: Path) -> None:
    fill(folder, 5, save_at=(200, 300, 500))
    assert checkpoint.saved_steps(folder / "checkpoint") == [200, 300, 500]
    (folder / "checkpoint" / ".step-000000600.npz.partial").touch()
    (folder / ".metrics.jsonl.partial").touch()
    whole = (folder / "metrics.jsonl").read_bytes()
    with (folder / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 6')

    writer = RunFolder(folder, 300).begin()
    assert writer.rows == rows(3)
    assert checkpoint.saved_steps(folder / "checkpoint") == [200, 300]
    assert names(folder) == {"config.json", "checkpoint", "metrics.jsonl"}
    assert names(folder / "checkpoint") == {"step-000000200.npz", "step-000000300.npz"}
    for row in rows(5)[3:]:
        writer.write(row)
    writer.save(500, {"w": np.arange(3)}, {})
    assert checkpoint.saved_steps(folder / "checkpoint") == [200, 300, 500]
    writer.prune()
    assert checkpoint.saved_steps(folder / "checkpoint") == [300, 500]
    writer.close()
    assert (folder / "metrics.jsonl").read_bytes() == whole


def test_rows_that_a_checkpoint_needs_must_be_there(folder: Path) -> None:
    fill(folder, 2, save_at=(200,))
    with pytest.raises(grue.BrokenFileError, match="ends at step 200, before the checkpoint of"):
        RunFolder(folder, 300)
    RunFolder(folder, 200).begin().close()  # The refusal gave the lock back and changed nothing.
    assert read_rows(folder) == rows(2)


def test_one_process_at_a_time(folder: Path) -> None:
    writer = RunFolder(folder, 0).begin()
    code = "import sys; from grue.training.runs import RunFolder; RunFolder({!r}, 0)"
    code = f"from pathlib import Path; {code.format(folder)}".replace("PosixPath", "Path")
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 1
    assert f"another process is training in {folder}; wait for it or stop it" in result.stderr
    writer.close()
    RunFolder(folder, 0).begin().close()


def test_a_folder_that_is_not_as_it_was_is_not_touched(folder: Path) -> None:
    fill(folder, 3, save_at=(300,))
    before = (folder / "metrics.jsonl").read_bytes()

    def refuse() -> None:
        with pytest.raises(grue.GrueError, match="another process"):
            RunFolder(folder, 0).begin().close()  # The check is made with the lock held.
        raise grue.GrueError("it has changed")

    with pytest.raises(grue.GrueError, match="it has changed"):
        RunFolder(folder, 0, refuse)
    assert (folder / "metrics.jsonl").read_bytes() == before
    assert checkpoint.saved_steps(folder / "checkpoint") == [300]
    with pytest.raises(grue.UsageError, match="another process has just created it"):
        create(folder, CONFIG, ABOUT)
    RunFolder(folder, 300).begin().close()


def test_what_another_process_trained_meanwhile_is_seen(folder: Path, monkeypatch) -> None:
    monkeypatch.setattr(runs, "check_same", lambda *_: None)
    fill(folder, 3, save_at=(300,))
    _check_unchanged(Member("run", CONFIG, 5, folder, (300,)))
    with pytest.raises(grue.GrueError, match=r"another process has trained in .* meanwhile"):
        _check_unchanged(Member("run", CONFIG, 5, folder, ()))


def test_rows_of_a_finished_run_without_a_checkpoint_are_kept(folder: Path) -> None:
    fill(folder, 8)
    before = (folder / "metrics.jsonl").read_bytes()
    RunFolder(folder, 0).begin().close()
    assert (folder / "metrics.jsonl.old").read_bytes() == before
    fill(folder, 7)  # Killed before its first checkpoint: the same rows will come again.
    (folder / "metrics.jsonl.old").unlink()
    RunFolder(folder, 0).begin().close()
    assert names(folder) == {"config.json", "checkpoint", "metrics.jsonl"}


# Reading


def test_read_runs(folder: Path) -> None:
    out = folder.parent
    other = out / "b"
    create(other, replace(CONFIG, seeds=(3,)), ABOUT)
    (out / "notes").mkdir()
    shutil.copytree(other, out / ".b.partial")
    found = read_runs([out])
    assert [(run.folder, run.seed) for run in found] == [(other, 3), (folder, 0)]
    assert [run.folder for run in read_runs([folder, str(other)])] == [folder, other]
    assert [run.folder for run in read_runs([out.parent])] == [other, folder]
    assert read_runs([]) == []
    for path in (out / "notes", out / "nowhere", folder / "config.json"):
        with pytest.raises(grue.UsageError, match="is no run folder and holds none"):
            read_runs([path])


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", '{"about": {}, "contxt": 3}', '{"about": {}, "steps": 7}'),
        *('{"about": 1}', '{"about": {"resumed": [1]}}', "[" * 100_000),
        '{"about": {}, "discount": 1' + "0" * 400 + "}",
    ],
    ids=range(9),
)
def test_a_damaged_config(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)
    reason = r"config\.json is damaged, or not the settings of a run"
    with pytest.raises(grue.BrokenFileError, match=reason):
        read_run(folder)


def test_only_steps_may_change(folder: Path) -> None:
    runs.check_same(folder, CONFIG, "hash")
    runs.check_same(folder, replace(CONFIG, steps=900), "hash")
    for values, reason in [
        ({"steps": 700}, "was trained with steps 800, not 700; it may only grow"),
        ({"hidden": 9, "context": 4}, "was trained with context 8, not 4"),
        ({"heads": 2, "steps": 900}, "was trained with heads None, not 2"),
        ({"softness": 0.25}, "was trained with softness 0.1, not 0.25"),
    ]:
        with pytest.raises(grue.UsageError) as caught:
            runs.check_same(folder, replace(CONFIG, **values), "hash")
        assert f"{folder} {reason}" in str(caught.value)
    runs.write_config(folder, CONFIG, {**ABOUT, "game_hash": "other"})
    with pytest.raises(grue.UsageError, match="was trained on another saladworld-1: its files"):
        runs.check_same(folder, CONFIG, "hash")


@pytest.mark.parametrize("heads", [1, 3])
def test_load_state(folder: Path, heads: int) -> None:
    """A drqn run's weights have more heads where it was trained beside others."""
    config = replace(CONFIG, agent="drqn")
    runs.write_config(folder, config, ABOUT)
    with pytest.raises(grue.GrueError, match="has no checkpoint yet; train it first"):
        runs.load_state(folder)

    built = build(config, heads, many=False)
    template = jax.eval_shape(built.program.init, jnp.int32(0), parameters_of(config))
    whole = jax.eval_shape(checkpoint.without_keys, template)
    tree = jax.tree.map(lambda leaf: np.full(leaf.shape, 1, leaf.dtype), whole)
    checkpoint.save(folder / "checkpoint", 300, tree, {"heads": heads, "explorers": [["none", {}]]})
    checkpoint.save(folder / "checkpoint", 400, tree, {"heads": heads, "explorers": [["none", {}]]})
    env, agent, state, parameters, step = runs.load_state(str(folder))
    assert step == 400
    assert agent.heads == heads
    assert env.commands == grue.load("saladworld-1").commands
    assert int(parameters.heads) == 1
    assert state.learned.network.context.bias.shape == (heads, 32)
    assert jax.tree.structure(state) == jax.tree.structure(template.agent)


# Where it all comes from


def test_about() -> None:
    told = about()
    assert list(told) == [
        *("commit", "changed_tree", "grue", "python", "jax", "jaxlib", "equinox", "device")
    ]
    assert told["grue"] == grue.__version__
    assert told["jax"] == jax.__version__
    assert told["python"] == ".".join(map(str, sys.version_info[:3]))


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder), *who, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_the_commit_of_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRUE_COMMIT", raising=False)
    checkout, code = tmp_path / "checkout", tmp_path / "checkout" / "src" / "grue" / "code.py"
    checkout.mkdir()
    git(checkout, "init", "-q")
    git(checkout, "commit", "-q", "--allow-empty", "-m", "first")
    assert commit_of(checkout) == (None, None)  # Somebody else's repository.
    code.parent.mkdir(parents=True)
    code.write_text("x = 1\n")
    first = git(checkout, "rev-parse", "HEAD")
    assert commit_of(checkout) == (first, False)  # Untracked files are no changes.
    git(checkout, "add", ".")
    assert commit_of(checkout) == (first, True)
    git(checkout, "commit", "-q", "-m", "second")
    second = git(checkout, "rev-parse", "HEAD")
    assert second != first
    assert commit_of(checkout) == (second, False)
    code.write_text("x = 2\n")
    assert commit_of(checkout) == (second, True)
    git(checkout, "worktree", "add", "-q", str(tmp_path / "tree"))
    assert commit_of(tmp_path / "tree") == (second, False)

    # A copy of the sources inside another repository.
    copy = checkout / "copy"
    (copy / "src" / "grue").mkdir(parents=True)
    assert commit_of(copy) == (None, None)


def test_the_variable_comes_before_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRUE_COMMIT", "abc")
    assert commit_of(tmp_path) == ("abc", None)
    (tmp_path / "src" / "grue").mkdir(parents=True)
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "first")
    assert commit_of(tmp_path) == ("abc", None)
    monkeypatch.setenv("GRUE_COMMIT", "")
    assert commit_of(tmp_path) == (git(tmp_path, "rev-parse", "HEAD"), False)


def test_a_games_path_means_the_same_from_any_folder(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolved(CONFIG) == CONFIG
    whole = str(tmp_path / "lamps.z8")
    assert resolved(replace(CONFIG, game="lamps.z8")).game == whole
    assert resolved(replace(CONFIG, game=whole)).game == whole
    assert resolved(replace(CONFIG, game="saladwrld-1")).game == "saladwrld-1"


def test_random_rows_keep_every_digit(folder: Path, rng: random.Random) -> None:
    """Rows that were read and written again are the same bytes: resuming depends on it."""
    made: list[MetricsRow] = []
    for i in range(1, 50):
        told = sums(episodes=rng.randrange(3), score=rng.random(), candidates=rng.random() * 1e4)
        made.append(make_row(CONFIG, 100 * i, told, made))
    writer = RunFolder(folder, 0).begin()
    for row in made:
        writer.write(row)
    writer.close()
    before = (folder / "metrics.jsonl").read_bytes()
    RunFolder(folder, 4900).begin().close()
    assert (folder / "metrics.jsonl").read_bytes() == before
    assert read_rows(folder) == made
