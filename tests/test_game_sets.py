"""Training on a folder of games: what may be tried, targets, splits, the best agent, errors."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_runs import SETTINGS, Watcher, arrays, config, same

import grue
from grue.agents import gating, targets
from grue.agents.catalogue import EXPLORERS, GATES
from grue.agents.learner import Learning, sequence_targets
from grue.agents.network import Outputs
from grue.agents.replay import GAME, ReplayStep
from grue.cli import entry
from grue.engine.stacked import StackedEnv
from grue.errors import BrokenFileError, GrueError, UsageError
from grue.experiments import ray_cluster
from grue.experiments.study import PlannedStudy, Where
from grue.experiments.worker import evaluate
from grue.reports.splits import draw_gaps, draw_splits, split_curves
from grue.training import playing
from grue.training.evaluate import play_episodes
from grue.training.evaluate_runs import GamesEvaluation, HowToPlay, evaluate_runs
from grue.training.playing import play_each_game
from grue.training.programs import (
    about_games,
    build,
    check_trainable,
    parameters_of,
    resolved,
)
from grue.training.progress import Display
from grue.training.runs import load_state, read_config, read_run
from grue.training.sets import TEST, TRAIN, VALID, is_set, sets_of
from grue.training.splits import COLUMNS, best_step, read_split_rows
from grue.training.train import train, train_all
from grue.training.trainer import RunResult

DATA = Path(grue.__file__).parent / "games" / "saladworld" / "data"
LEVELS = {TRAIN: (2, 4), VALID: (1,), TEST: (5,)}
"""They have 15, 50, 8 and 141 commands, each all of the smaller ones."""


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each split, and one with a single game."""
    top = tmp_path_factory.mktemp("games")
    for name, levels in {**LEVELS, "one": (1,)}.items():
        (top / name).mkdir()
        for level in levels:
            file = f"saladworld-{level}.grue.npz"
            shutil.copyfile(DATA / file, top / name / file)
    return top


@pytest.fixture(scope="session")
def setting(folders: Path) -> Callable[..., grue.TrainConfig]:
    """A tiny config on the training games."""

    def make(**given: Any) -> grue.TrainConfig:
        own = {"game": str(folders / TRAIN), "agent": "drrn", "valid_every": 200, "steps": 600}
        own |= {"gate": "oracle"}
        own |= {"valid": str(folders / VALID), "test": str(folders / TEST)}
        return config(**{**own, "average_over": 200, **given})

    return make


@pytest.fixture(scope="session")
def done(
    setting: Callable[..., grue.TrainConfig], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The folder of a trained run."""
    out = tmp_path_factory.mktemp("runs")
    train(setting(), out, checkpoint_seconds=0.0)
    return out / "train-drrn-oracle-seed0"


# Which commands may be tried


@pytest.mark.parametrize("gate", ["none", "oracle", "dropout", "masking", "cqlh", "acqlh"])
@pytest.mark.parametrize("softness", [0.0, 1.0])
def test_no_gate_lets_commands_through_that_the_game_lacks(gate: str, softness: float) -> None:
    exists = jnp.array([True, False, True, False])
    run = config(gate=gate)
    own = parameters_of(run)._replace(softness=jnp.float32(softness))
    for believed in (jnp.ones(4), jnp.array([0.0, 1.0, 0.0, 1.0]), jnp.zeros(4)):
        for possible in (exists, jnp.zeros(4, bool)):
            found = gating.registered_gates().candidates(
                jax.random.key(3), own, believed, possible, exists
            )
            assert not (found & ~exists).any()
            assert found.any()


@pytest.mark.parametrize(("gate", "best"), [("none", 3.0), ("oracle", 2.0), ("acqlh", 1.5)])
def test_maxima_in_targets_are_over_the_commands_of_the_game(gate: str, best: float) -> None:
    """By hand: the value 9 belongs to a command that the game lacks."""
    gates, number = gating.registered_gates(), GATES.number(gate)
    values, exists = jnp.array([2.0, 9.0, 3.0]), jnp.array([True, False, True])
    only_first = jnp.array([True, False, False])
    given = values, jnp.float32(1), jnp.float32(0.5), only_first
    assert targets.next_value(gates, number, *given, exists) == best
    # Where nothing is admissible, the oracle's maximum is over all that exist.
    given = values, jnp.float32(1), jnp.float32(0.5), jnp.zeros(3, bool)
    expected = {"none": 3.0, "oracle": 3.0, "acqlh": 1.5}[gate]
    assert targets.next_value(gates, number, *given, exists) == expected


def test_targets_of_a_sequence_use_the_commands_of_its_own_game() -> None:
    """Two sequences with the same values, of games with other commands: y by hand."""
    run = config(gate="none", oracle_in_targets=False, discount=0.5)
    sets = jnp.array([[True, True, False], [True, False, True]])
    settings: Any = run.settings
    learning = Learning(
        settings, gating.registered_gates(), parameters_of(run), look=0, command_sets=sets
    )
    values = jnp.broadcast_to(jnp.array([1.0, 8.0, 4.0]), (2, 2, 3))
    row = ReplayStep(
        observation=jnp.zeros((2, 2, 1), jnp.int32),
        score=jnp.zeros((2, 2), jnp.int32),
        action=jnp.zeros((2, 2), jnp.int32),
        reward=jnp.array([[1.0, 10.0], [0.0, 0.0]]),
        admissible=jnp.ones((2, 2), bool),
        terminated=jnp.zeros((2, 2), bool),
        fields={GAME: jnp.array([[0, 1], [0, 1]], jnp.uint8)},
    )
    y = sequence_targets(Outputs(values, values), row, jnp.ones((1, 2), bool), learning)
    # 1 + 0.5 · 8, and 10 + 0.5 · 4.
    assert y.tolist() == [[5.0, 12.0]]


def test_stored_commands_are_those_of_the_game(done: Path) -> None:
    env, _, state, _, _ = load_state(done)
    memory = state.kept.replay
    steps = int(memory.written)
    actions, games = memory.stored.facts[:steps, 1], memory.stored.fields[GAME][:steps]
    assert steps > 500
    assert set(games.tolist()) == {0, 1}
    assert env.command_sets is not None
    assert env.command_sets[games, actions].all()
    assert env.command_sets.sum(1).tolist() == [15, 50]


@pytest.mark.parametrize("gate", ["none", "masking", "dropout", "cqlh"])
def test_acting_never_leaves_the_game(setting: Callable[..., grue.TrainConfig], gate: str) -> None:
    """At ε 1, where any candidate is as likely."""
    env, agent, state, parameters = start_of(setting(gate=gate))
    played = play_episodes(env, agent, state, parameters, setting(), 6, 1.0)
    assert set(played.games.tolist()) == {0, 1}
    for number, game in enumerate(played.games):
        taken = played.trace.action[number, : played.steps[number]]
        assert env.command_sets[game, taken].all()
        assert len(set(taken.tolist())) > 5


def start_of(run: grue.TrainConfig) -> tuple[Any, ...]:
    """Environment, agent, its first state and the run's parameters."""
    built, parameters = build(resolved(run), run.heads_in_use, many=False), parameters_of(run)
    first = built.program.init(jnp.int32(0), parameters)
    return built.env, built.agent, first.agent, parameters


def test_metrics_count_only_what_the_game_has(done: Path) -> None:
    run = read_run(done)
    env = sets_of(run.config)[TRAIN]
    assert (run.metrics["candidates"] < len(env.commands)).all()
    assert (run.metrics["failures"] == 0).all()


def test_fractions_are_of_the_subtasks_of_the_game(folders: Path) -> None:
    env = grue.make_many([DATA / f"saladworld-{n}.grue.npz" for n in (1, 7)])
    counts = [len(env.single(game).subtask_names) for game in range(2)]
    assert counts[0] < counts[1] == len(env.subtask_names)
    state, step = env.reset(game=0)
    whole = step._replace(subtasks=jnp.arange(counts[1]) < counts[0])
    assert env.fraction(state, whole) == 1
    assert env.won(state, whole)
    less = step._replace(subtasks=jnp.arange(counts[1]) < 1)
    assert env.fraction(state, less) == pytest.approx(1 / counts[0])
    assert not env.won(state, less)
    other, _ = env.reset(game=1)
    assert not env.won(other, whole)


# Splits and the best agent


def test_rows_of_the_splits(done: Path) -> None:
    run = read_config(done)[0]
    rows = read_split_rows(done, run)
    assert [(row["step"], row["split"]) for row in rows] == [
        (step, split) for step in (200, 400, 600) for split in (TRAIN, VALID, TEST)
    ]
    assert all(list(row) == list(COLUMNS) for row in rows)
    assert [row["games"] for row in rows[:3]] == [2, 1, 1]
    assert all(-1 <= row["normalised"] <= 1 for row in rows)
    assert len({row["normalised"] for row in rows}) > 1


def test_unseen_games_are_played_with_the_words_of_the_training(done: Path) -> None:
    sets = sets_of(read_config(done)[0])
    train_words = sets[TRAIN].vocabulary
    assert sets[TEST].vocabulary == train_words
    assert set(sets[TEST].commands) - set(sets[TRAIN].commands)
    assert 1 in np.asarray(sets[TEST].reset(game=0)[1].observation)
    assert 1 not in np.asarray(sets[TRAIN].reset(game=0)[1].observation)


def test_the_best_agent_is_kept(done: Path) -> None:
    rows = read_split_rows(done, read_config(done)[0])
    best = best_step(rows)
    assert [file.name for file in (done / "best").iterdir()] == [f"step-{best:09}.npz"]
    assert load_state(done, "best")[-1] == best
    assert grue.load_agent(done, step="best").trained_steps == best
    (played,) = evaluate_runs(done, HowToPlay(best=True, greedy_only=True))
    assert isinstance(played, GamesEvaluation)
    own = [row for row in rows if row["step"] == best and row["split"] == TRAIN]
    assert played.greedy.score.mean() == own[0]["score"]


@pytest.mark.parametrize(
    ("scores", "best"), [([0.1, 0.5, 0.5], 400), ([0.0, 0.0, 0.0], 200), ([-1, -0.5, 0.2], 600)]
)
def test_the_first_of_equals_is_best(scores: list[float], best: int) -> None:
    rows = [
        {"step": 200 * (n + 1), "split": split, "normalised": score if split == VALID else 5 - n}
        for n, score in enumerate(scores)
        for split in (TRAIN, VALID)
    ]
    assert best_step(rows) == best
    assert best_step([row for row in rows if row["split"] == TRAIN]) is None


class StopsAt(Watcher):
    """Fails as a killed process does, when splits are told of for the n-th time."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def say(self, line: str) -> None:
        self.count -= "normalised" in line
        if not self.count:
            raise RuntimeError("killed")


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_killed_run_ends_with_the_same_bytes(
    done: Path, setting: Callable[..., grue.TrainConfig], tmp_path: Path, count: int
) -> None:
    """Killed after the rows of a split were written, and before a checkpoint was."""
    with pytest.raises(RuntimeError, match="killed"):
        train(setting(), tmp_path, progress=StopsAt(count), checkpoint_seconds=0.0)
    folder = tmp_path / done.name
    train(setting(), tmp_path, resume=True, checkpoint_seconds=0.0)
    same(folder, done)
    assert splits_of(folder) == splits_of(done)
    assert best_of(folder) == best_of(done)


def test_a_run_may_go_on_with_more_steps(
    done: Path, setting: Callable[..., grue.TrainConfig], tmp_path: Path
) -> None:
    train(setting(steps=200), tmp_path)
    train(setting(), tmp_path, resume=True)
    assert splits_of(tmp_path / done.name) == splits_of(done)
    assert arrays(tmp_path / done.name) == arrays(done)


def splits_of(folder: Path) -> bytes:
    return (folder / "splits.jsonl").read_bytes()


def best_of(folder: Path) -> dict[str, Any]:
    """What the best agent had learned, to the bit."""
    (file,) = (folder / "best").iterdir()
    with np.load(file) as archive:
        return {name: (a.shape, a.tobytes()) for name, a in archive.items()} | {"at": file.name}


def test_damaged_rows_are_refused(
    done: Path, setting: Callable[..., grue.TrainConfig], tmp_path: Path
) -> None:
    folder = shutil.copytree(done, tmp_path / done.name)
    lines = splits_of(folder).splitlines(keepends=True)
    (folder / "splits.jsonl").write_bytes(b"".join([*lines[:1], *lines[2:]]))
    with pytest.raises(BrokenFileError, match=r"line 2 is damaged \(split is 'test'\)"):
        read_split_rows(folder, setting())
    (folder / "splits.jsonl").write_bytes(b"".join(lines[:-1]))
    with pytest.raises(BrokenFileError, match="ends at step 600, before the checkpoint"):
        train(setting(steps=800), tmp_path, resume=True)
    (folder / "splits.jsonl").unlink()
    with pytest.raises(BrokenFileError, match="ends at step 0, before the checkpoint of step 600"):
        train(setting(), tmp_path, resume=True)  # It was finished.


# Evaluation


def test_a_row_for_each_game_and_one_for_all(done: Path, folders: Path) -> None:
    (played,) = evaluate_runs(done, HowToPlay(episodes=3))
    assert isinstance(played, GamesEvaluation)
    rows = list(played.rows())
    assert [row[2] for row in rows] == ["saladworld-2", "saladworld-4", "all 2"] * 2
    assert [row[3] for row in rows] == ["greedy"] * 3 + ["ε 0.1"] * 3
    last = read_split_rows(done, read_config(done)[0])[-3]
    assert rows[2][6] == f"{last['normalised']:.3f}"
    assert played.exploring is not None
    assert played.exploring.score.shape == (3, 2)
    assert rows[5][-1].endswith(" of 6")
    told = played.to_json()
    assert told["greedy"]["normalised"] == pytest.approx(last["normalised"])
    assert [game["max_score"] for game in told["games"]] == played.env.max_scores.tolist()


def test_episodes_without_end_are_refused(done: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="episodes must be from 1 to 2147483647"):
        HowToPlay(episodes=10**12)
    monkeypatch.setattr("grue.training.memory.free_host_bytes", lambda: 10**6)
    (found,) = evaluate_runs(done.parent, HowToPlay(episodes=2**31 - 1))
    assert "2147483647 episodes need" in str(found)


def test_other_games_are_played_as_in_the_training(done: Path, folders: Path) -> None:
    (played,) = evaluate_runs(done, HowToPlay(games=folders / TEST, greedy_only=True))
    last = read_split_rows(done, read_config(done)[0])[-1]
    assert isinstance(played, GamesEvaluation)
    assert played.to_json()["greedy"]["score"] == last["score"]
    assert played.to_json()["folder"] == str(folders / TEST)


def test_quick_play_is_traced_play(
    setting: Callable[..., grue.TrainConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in several batches."""
    env, agent, state, parameters = start_of(setting())
    games = range(len(env.names))
    traced = play_episodes(env, agent, state, parameters, setting(), 2, 0.0, games=games)
    finals = play_each_game(env, agent, state, parameters)
    for one, other in zip(finals, (traced.score, traced.fraction, traced.won), strict=False):
        np.testing.assert_allclose(one, other)
    assert finals.steps.tolist() == traced.steps.tolist()
    assert traced.games.tolist() == [0, 1]
    monkeypatch.setattr(playing, "AT_ONCE", 1)
    playing.quick_play.cache_clear()
    for one, other in zip(play_each_game(env, agent, state, parameters), finals, strict=True):
        np.testing.assert_array_equal(one, other)
    playing.quick_play.cache_clear()


def test_a_player_plays_a_set(done: Path) -> None:
    player = grue.load_agent(done)
    assert isinstance(player.env, StackedEnv)
    step = player.reset()
    own = player.env.exists(player.state)
    for _ in range(3):
        action = player.act(step)
        assert own[action]
        assert all(own[player.env.commands.index(t.command)] for t in player.thoughts())
        step = player.step(action)


# The command line


def run_cli(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = entry.main([*map(str, arguments)])
    told = capsys.readouterr()
    return code, told.out, told.err


@cache
def tiny_options() -> list[str]:
    own = {**SETTINGS, "valid_every": 200, "average_over": 200}
    del own["softness"]
    return [word for name, value in own.items() for word in ("--set", f"{name}={value}")]


def test_train_and_eval_from_the_command_line(
    done: Path, folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--agent", "drrn", "--gate", "oracle", "--preset", "paper", *tiny_options()]
    options += ["--valid", str(folders / VALID), "--test", str(folders / TEST)]
    place = ["--out", str(tmp_path), "--steps", "600"]
    code, _, told = run_cli(capsys, "train", str(folders / TRAIN), *options, *place)
    assert code == 0
    assert "train: 2 games" in told
    assert "at step 600, normalised scores: train" in " ".join(told.split())
    assert splits_of(tmp_path / done.name) == splits_of(done)
    games = ["--games", str(folders / TEST), "--greedy"]
    code, shown, _ = run_cli(capsys, "eval", str(tmp_path), *games, "--json", "--best")
    assert code == 0
    (played,) = json.loads(shown)
    assert [game["game"] for game in played["games"]] == ["saladworld-5"]
    code, shown, _ = run_cli(capsys, "eval", str(tmp_path), "--greedy", "--transcript")
    assert code == 0
    assert shown.count("\n> ") >= 45
    assert "normalised" in shown
    assert "all 2" in shown


def test_what_is_refused(
    setting: Callable[..., grue.TrainConfig], folders: Path, tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    one_game = {"game": "saladworld-1", "agent": "drrn", "test": None}
    for given, told in (
        ({"valid": str(tmp_path / "none")}, "there is no folder .*none"),
        ({"valid": str(empty)}, "no games in .*empty; give a folder with stories .* or compiled"),
        ({"game": str(empty)}, "there are no games in .*empty"),
        (
            {"test": str(folders / "one")},
            "saladworld-1 of the test games is also saladworld-1 of the valid",
        ),
        (one_game, "--valid .* is for training on a folder of games, and saladworld-1 is one game"),
        ({"agent": "tabular", "gate": "none"}, "tabular trains on one game, .* use drqn, sc, drrn"),
        (
            {"agent": "sc"},
            "sc knows commands by their number, and .*test has commands, such as '.*', that .*"
            "train does not have; use an agent that reads commands: drrn",
        ),
        ({"valid_every": 300}, "valid_every must be a multiple of metrics_every, which is 200"),
        ({"steps": 800, "valid_every": 600}, "steps must be a multiple of valid_every, .* 600"),
        ({"story": "x.z5"}, "--story is for one Z-machine story, and .* is a folder of games"),
        ({"commands": "x"}, "--commands is for one Z-machine story, and .* is a folder of games"),
        (
            {"game": str(tmp_path / "gmaes"), "valid": None, "test": None},
            "no file or folder .*gmaes",
        ),
        (
            {"valid": str(DATA / "saladworld-7.z8")},
            "saladworld-7.z8 is no folder; give a folder of",
        ),
    ):
        with pytest.raises(UsageError, match=told):
            check_trainable(resolved(setting(**given)))
    returns = setting(explore="achievements", return_share=0.5)
    with pytest.raises(UsageError, match="return_share repeats the commands of the best episode"):
        build(resolved(returns), 5, many=False)


def test_damaged_games_are_refused_or_left_out(
    setting: Callable[..., grue.TrainConfig], folders: Path, tmp_path: Path
) -> None:
    games = shutil.copytree(folders / TRAIN, tmp_path / "games")
    file = games / "saladworld-2.grue.npz"
    file.write_bytes(file.read_bytes()[:5000])
    with pytest.raises(GrueError, match=r"1 of 2 games of .*games cannot be used, first saladw"):
        check_trainable(resolved(setting(game=str(games))))
    left = setting(game=str(games), leave_out=True, test=None, steps=200)
    check_trainable(resolved(left))
    told = about_games(resolved(left))
    assert told[0].startswith("train: 1 game, 50 commands")
    assert "left out 1, first saladworld-2.grue.npz (" in told[0]
    assert "left out" not in told[1]
    for other in games.iterdir():
        other.write_bytes(b"none")
    with pytest.raises(UsageError, match="none of the 2 games can be used"):
        check_trainable(resolved(left))


def test_eval_leaves_damaged_games_out_if_asked(
    done: Path, folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    games = shutil.copytree(folders / TEST, tmp_path / "games")
    (games / "broken.grue.npz").write_bytes(b"none")
    asked = ["eval", str(done), "--greedy", "--games", str(games)]
    code, _, told = run_cli(capsys, *asked)
    assert code == 1
    assert "1 of 2 games of" in told
    assert "broken.grue.npz" in told
    assert "grue eval --leave-out" in told
    code, shown, told = run_cli(capsys, *asked, "--leave-out", "--json")
    assert code == 0
    assert [game["game"] for game in json.loads(shown)[0]["games"]] == ["saladworld-5"]
    assert "left out 1, first broken.grue.npz (" in told
    code, _, told = run_cli(capsys, "eval", str(done), "--leave-out")
    assert code == 2
    assert "--leave-out is for the files of --games" in told


def test_a_run_on_a_node_that_cannot_be_played_is_told(
    done: Path, folders: Path, tmp_path: Path
) -> None:
    """It does not spoil the others."""
    bare = shutil.copytree(done, tmp_path / "bare")
    for place in ("checkpoint", "best"):
        shutil.rmtree(bare / place)
    how = HowToPlay(greedy_only=True, games=folders / TEST)
    told: list[Any] = []
    runs = [("a", {"folder": str(bare)}), ("b", {"folder": str(done)})]
    order = {"kind": "evaluate", "runs": runs, **json.loads(json.dumps(how.to_json()))}
    assert evaluate(order, lambda name, values: told.append((name, values))) == ("done", {})
    (first, lost), (second, found) = told
    assert (first, second, lost["run"], found["run"]) == ("result", "result", "a", "b")
    assert (lost["has_only_begun"], lost["code"]) == (True, 1)
    assert "has no checkpoint" in lost["why"]
    (here,) = evaluate_runs(done, how)
    assert isinstance(here, GamesEvaluation)
    assert found["json"] == {**here.to_json(), "run": "b"}


def test_nodes_must_see_the_games_of_all_splits(
    setting: Callable[..., grue.TrainConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check_nodes(out: Path, files: list[str]) -> None:
        raise GrueError(" ".join(files))

    monkeypatch.setattr(ray_cluster, "connect", lambda address, cores: None)
    monkeypatch.setattr(ray_cluster, "check_nodes", check_nodes)
    own = setting(steps=200)
    study = PlannedStudy([own], tmp_path, tmp_path, Where(ray="auto"), Display())
    with pytest.raises(GrueError) as told:
        study.carry_out()
    assert {own.game, own.valid, own.test} == set(str(told.value).split())


def test_a_run_is_of_its_games(
    setting: Callable[..., grue.TrainConfig], folders: Path, tmp_path: Path
) -> None:
    """Also where the games of the validation change."""
    valid = shutil.copytree(folders / VALID, tmp_path / "valid")
    own = setting(valid=str(valid), test=None, steps=200)
    train(own, tmp_path / "runs")
    shutil.copyfile(DATA / "saladworld-3.grue.npz", valid / "saladworld-3.grue.npz")
    longer = dataclasses.replace(own, steps=400)
    with pytest.raises(UsageError, match="its files have changed since"):
        train(longer, tmp_path / "runs", resume=True)


def test_an_agent_plays_with_the_words_of_its_own_games(
    setting: Callable[..., grue.TrainConfig], folders: Path, tmp_path: Path
) -> None:
    """Other games may have as many words, and other numbers for them."""
    games = shutil.copytree(folders / TRAIN, tmp_path / "games")
    valid = shutil.copytree(folders / VALID, tmp_path / "valid")
    run = train(setting(game=str(games), valid=str(valid), test=None, steps=200), tmp_path / "runs")
    (folder,) = (result.folder for result in run.runs)
    assert folder is not None
    shutil.rmtree(valid)  # It is not needed to play.
    grue.load_agent(folder).close()
    (games / "saladworld-2.grue.npz").rename(games / "saladworld-9.grue.npz")
    with pytest.raises(UsageError, match=r"games have changed since .* was trained on them"):
        grue.load_agent(folder)


def test_a_folder_with_the_name_of_a_game_is_not_the_game(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "saladworld-1").mkdir()
    monkeypatch.chdir(tmp_path)
    named = config()
    assert named.game == "saladworld-1"
    assert not is_set(named)
    assert is_set(dataclasses.replace(named, game="./saladworld-1"))


def test_there_is_no_best_step_without_validation(
    setting: Callable[..., grue.TrainConfig], folders: Path, tmp_path: Path
) -> None:
    run = train(setting(valid=None, test=None, steps=200), tmp_path).runs[0]
    assert [row["split"] for row in run.splits] == [TRAIN]
    assert run.folder is not None
    assert not (run.folder / "best").exists()
    with pytest.raises(UsageError, match="has no best step: it was trained without --valid"):
        load_state(run.folder, "best")
    alone = train(config(agent="drrn", steps=200), tmp_path).runs[0]
    assert alone.folder is not None
    assert not (alone.folder / "splits.jsonl").exists()
    with pytest.raises(UsageError, match="was trained on one game, saladworld-1"):
        list(evaluate_runs(alone.folder, HowToPlay(games=folders / TEST)))


# Figures


def test_curves_and_gaps_are_drawn(done: Path, tmp_path: Path) -> None:
    (run,) = split_curves([done.parent])
    rows = read_split_rows(done, read_config(done)[0])
    assert run.metrics["valid"].tolist() == [r["normalised"] for r in rows if r["split"] == VALID]
    gap = run.metrics["train"] - run.metrics["test"]
    np.testing.assert_array_equal(run.metrics["train - test"], gap)
    assert run.config.game.endswith(f"/{TRAIN}")
    assert draw_splits([run], tmp_path / "splits.png").stat().st_size > 5000
    assert draw_gaps([run], tmp_path / "gaps.svg").stat().st_size > 5000
    none = dict.fromkeys(("train - valid", "train - test"), gap * np.nan)
    alone = dataclasses.replace(run, metrics={**run.metrics, **none})
    with pytest.raises(GrueError, match="no run has played the games of train - valid yet"):
        draw_gaps([alone], tmp_path / "none.png")


def test_the_report_shows_them(
    done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, figures = tmp_path / "report.html", tmp_path / "figures"
    places = ["-o", str(page), "--figures", str(figures)]
    assert run_cli(capsys, "report", str(done.parent), *places)[0] == 0
    text = page.read_text()
    assert "The generalisation gap" in text
    assert "Training, validation and test games" in text
    assert (figures / "gaps.png").exists()
    (told,) = json.loads((figures / "splits.json").read_text())
    assert told["run"] == done.name
    assert told["step"] == [200, 400, 600]


# Other programs


@pytest.fixture(scope="module")
def side_by_side(setting: Callable[..., grue.TrainConfig]) -> list[RunResult]:
    """Two seeds without an explorer, then each explorer, in one program."""
    explored = [setting(explore=name, steps=400) for name in EXPLORERS if name != "none"]
    return train_all([setting(seeds=(0, 1), steps=400), *explored], together=True).runs


def test_all_explorers_train_on_a_set(side_by_side: list[RunResult]) -> None:
    assert {run.config.explore for run in side_by_side[2:]} == set(EXPLORERS) - {"none"}
    for run in side_by_side[2:]:
        assert run.metrics["first_events"].sum() > 0
        assert np.isfinite(run.metrics["q_loss"][-1])
        assert [row["split"] for row in run.splits] == [TRAIN, VALID, TEST] * 2


def test_a_set_of_one_game_trains_as_the_game(
    setting: Callable[..., grue.TrainConfig], folders: Path
) -> None:
    """With the weights of the same words: a set has two more rows of them, for unknown words."""
    alone = config(agent="drrn", gate="masking", game=str(next((folders / "one").iterdir())))
    of_set = setting(game=str(folders / "one"), valid=None, test=None)
    built, set_built = (build(resolved(run), 5, many=False) for run in (alone, of_set))
    parameters = parameters_of(alone)
    run, set_run = (one.program.init(jnp.int32(0), parameters) for one in (built, set_built))
    words, more = (one.env.vocabulary for one in (built, set_built))
    assert set(words.words) < set(more.words)
    rows = np.array([0, *(more.numbers[word] for word in words.words)])

    def widened(one: Any, like: Any) -> Any:
        """A tree of the game as one of the set."""
        return jax.tree.map(
            lambda a, b: a + 0 if a.shape == b.shape else jnp.zeros_like(b).at[rows].set(a),
            one,
            like,
        )

    learned = widened(run.agent.learned, set_run.agent.learned)
    set_run = set_run._replace(agent=set_run.agent._replace(learned=learned))
    for step, learn in ((0, False), (200, True), (400, True)):
        run, sums = built.program.advance(run, jnp.int32(step), learn, 200)
        set_run, set_sums = set_built.program.advance(set_run, jnp.int32(step), learn, 200)
        assert sums.keys() == set_sums.keys()
        for name in sums:
            np.testing.assert_allclose(sums[name], set_sums[name], rtol=2e-3, atol=1e-4)
    assert sums["updates"] == 50
    assert set_run.agent.kept.replay.written == run.agent.kept.replay.written
    facts, set_facts = (one.agent.kept.replay.stored.facts for one in (run, set_run))
    np.testing.assert_array_equal(facts, set_facts)


def test_runs_side_by_side_play_the_splits_as_alone(
    done: Path, side_by_side: list[RunResult]
) -> None:
    both = side_by_side[:2]
    assert [run.config.explore for run in both] == ["none", "none"]
    alone = read_split_rows(done, read_config(done)[0])
    assert [row["split"] for row in both[0].splits] == [row["split"] for row in alone[:6]]
    assert {row["seed"] for row in both[1].splits} == {1}
    # The same weights but for rounding: the first rows are of the same play.
    assert [row["score"] for row in both[0].splits[:3]] == [row["score"] for row in alone[:3]]


def test_an_indexed_agent_plays_unseen_games_with_its_commands(
    setting: Callable[..., grue.TrainConfig], tmp_path: Path
) -> None:
    """Level 1 has no other commands."""
    run = train(setting(agent="sc", test=None, steps=200), tmp_path).runs[0]
    assert [row["split"] for row in run.splits] == [TRAIN, VALID]
    sets = sets_of(run.config)
    assert sets[VALID].commands == sets[TRAIN].commands
