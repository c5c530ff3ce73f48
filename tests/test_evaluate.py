"""Evaluation: the scanned program against a plain loop, forced looks, chance, transcripts."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from rich.console import Console
from small_runs import NAME, TINY, TINY_STEPS

import grue
from grue.agents.agent import Agent, AgentState, Episode, RunParameters
from grue.agents.gating import GATES, registered_gates
from grue.agents.network import ActionScorer, Network
from grue.agents.registry import Setup
from grue.cli import demo, entry
from grue.cli.transcript import tell, tell_briefly
from grue.engine.environment import Environment
from grue.errors import GrueError, UsageError
from grue.training import evaluate as evaluating
from grue.training.evaluate import Evaluation, PlayedStep, play_episodes
from grue.training.evaluate_runs import RunEvaluation
from grue.training.player import Player
from grue.training.playing import PLAY_STREAM
from grue.training.train import Result, train

PAGE = Path(__file__).parents[1] / "docs" / "training.md"

LOOK = 20
SIZE = 4


class Trained(NamedTuple):
    env: Environment
    agent: Agent
    state: AgentState
    parameters: RunParameters


def parameters_with(gate: str, look_every: int = LOOK) -> RunParameters:
    share, softness = jnp.float32(0.25), jnp.float32(TINY.softness if gate == TINY.gate else 0)
    number = jnp.int32(GATES.number(gate))
    return RunParameters(number, jnp.int32(5), share, share, jnp.int32(look_every), softness)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Two runs of a tiny agent with some updates: its weights are no longer those of the start."""
    return train(TINY, tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def trained(result: Result) -> Trained:
    return Trained(*result.runs[0].trained[:4])


@pytest.fixture(autouse=True)
def batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of one small size, so that the tests share their programs."""
    monkeypatch.setattr(evaluating, "AT_ONCE", SIZE)


@lru_cache
def compiled(function: Callable) -> Callable:
    return jax.jit(function)


def plainly(trained: Trained, epsilon: float, seed: int, number: int) -> list[tuple]:
    """One episode, command by command: what the program must have played."""
    env, agent, state, parameters = trained
    act, step = compiled(agent.act), compiled(env.step)
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), PLAY_STREAM), number)
    game, seen = compiled(env.reset)()
    now = Episode(game, seen, jnp.int32(-1), jnp.int32(0), agent.start(state))
    told = []
    while not (bool(now.seen.terminated) or bool(now.seen.truncated)):
        time = len(told) + 1
        chance = jax.random.fold_in(key, time)
        _, decision = act(state, now, parameters, jnp.float32(epsilon), chance)
        look_every = int(parameters.look_every)
        forced = look_every > 0 and time % look_every == 0
        action = jnp.int32(env.commands.index("look")) if forced else decision.action
        game, seen = step(now.game, action)
        values = np.asarray(decision.values)
        allowed = np.flatnonzero(decision.candidates)
        best = sorted(allowed, key=lambda i: -values[i])[:3]
        told.append(
            (
                env.commands[int(action)],
                forced,
                env.decode(seen.observation),
                int(decision.head),
                len(allowed),
                int(seen.reward),
                int(seen.score),
                bool(seen.admissible),
                [env.commands[i] for i in best],
                [float(values[i]) for i in best],
                [float(decision.admissibility[i]) for i in best],
            )
        )
        memory = agent.perceive(decision.memory, game, seen)
        now = Episode(game, seen, jnp.int32(action), jnp.int32(time), memory)
    return told


def flat(step: PlayedStep) -> tuple:
    return (
        *(step.command, step.forced, step.text, step.head, step.candidates),
        *(step.reward, step.score, step.admissible),
        [thought.command for thought in step.top],
        pytest.approx([thought.value for thought in step.top], rel=1e-4, abs=1e-5),
        pytest.approx([thought.admissibility for thought in step.top], rel=1e-4),
    )


def test_the_program_plays_as_a_plain_loop_would(trained: Trained) -> None:
    """The first episodes, and one of the second batch, which is not full."""
    played = play_episodes(*trained, TINY, episodes=SIZE + 2, epsilon=0.3, seed=5)
    assert len(played) == len(played.score) == SIZE + 2
    for number in (0, 1, SIZE + 1):
        expected = plainly(trained, 0.3, 5, number)
        assert [flat(step) for step in played.record(number)] == expected
        assert played.steps[number] == len(expected)
        assert played.score[number] == expected[-1][6]
    assert len({tuple(actions) for actions in played.trace.action.tolist()}) == SIZE + 2
    opening = compiled(trained.env.reset)()[1].observation
    assert played.opening == trained.env.decode(opening)


def test_greedy_play_is_the_loop_with_a_hard_gate(trained: Trained) -> None:
    hard = trained.parameters._replace(softness=jnp.float32(0))
    assert float(trained.parameters.softness) == 0.5
    played = play_episodes(*trained, TINY)
    assert len(played) == 1
    expected = plainly(trained._replace(parameters=hard), 0.0, 0, 0)
    assert [flat(step) for step in played.record()] == expected


def same(one: Evaluation, other: Evaluation) -> bool:
    leaves = zip(jax.tree.leaves(one.trace), jax.tree.leaves(other.trace), strict=True)
    return all(np.array_equal(a, b) for a, b in leaves)


def test_chance_comes_from_the_seed_alone(trained: Trained) -> None:
    played = play_episodes(*trained, TINY, SIZE, 0.3, seed=1)
    assert same(played, play_episodes(*trained, TINY, SIZE, 0.3, seed=1))
    assert not same(played, play_episodes(*trained, TINY, SIZE, 0.3, seed=2))


@pytest.mark.parametrize(("gate", "episodes"), [("none", SIZE), ("oracle", SIZE), ("masking", 1)])
def test_greedy_play_has_no_chance(gate: str, episodes: int, trained: Trained) -> None:
    given = trained._replace(parameters=parameters_with(gate))
    first = play_episodes(*given, TINY, episodes, seed=3).record()
    for seed in (3, 4, 99):
        played = play_episodes(*given, TINY, episodes, seed=seed)
        assert all(played.record(i) == first for i in range(episodes))
    for step in first:
        if not step.forced:
            assert step.command == step.top[0].command
        assert list(step.top) == sorted(step.top, key=lambda thought: -thought.value)
        assert len(step.top) == min(3, step.candidates)


def test_the_soft_gate_opens_at_an_epsilon_and_not_in_greedy_play(trained: Trained) -> None:
    state = favouring(trained.state, trained.env.commands.index("go south"))
    given = trained._replace(state=state)
    greedy = play_episodes(*given, TINY)
    assert set(greedy.trace.candidates[0].tolist()) == {1}
    assert {step.command for step in greedy.record()} == {"go south", "look"}
    soft = play_episodes(*given, TINY, SIZE, 0.1)
    assert set(soft.trace.candidates[soft.trace.played].tolist()) == {1, 8}


def favouring(state: AgentState, command: int) -> AgentState:
    """The state with ξ̂ = 1 for one command and 0 for the others."""

    def bias(network: Network) -> Array:
        scorer = network.classifier.scorer
        assert isinstance(scorer, ActionScorer)
        return scorer.second_bias

    network = state.learned.network
    certain = jnp.full_like(bias(network), -1e6).at[:, command].set(1e6)
    network = eqx.tree_at(bias, network, certain)
    return state._replace(learned=state.learned._replace(network=network))


def test_looks_are_forced_at_their_steps(trained: Trained) -> None:
    for every, expected in ((20, [20, 40]), (7, [7, 14, 21, 28, 35, 42]), (0, [])):
        parameters = parameters_with("masking", look_every=every)
        played = play_episodes(*trained._replace(parameters=parameters), TINY, SIZE, epsilon=0.5)
        record = played.record()
        assert [step.number for step in record] == list(range(1, TINY_STEPS + 1))
        assert [step.number for step in record if step.forced] == expected
        assert all(step.command == "look" for step in record if step.forced)


def test_the_state_is_not_changed_and_new_scores_share_the_next_head(trained: Trained) -> None:
    """Only the score 0 has been seen: 10 gets the next head in every episode, and so would 5."""
    contexts = trained.state.kept.contexts
    known = contexts._replace(count=jnp.int32(1), seen=jnp.zeros_like(contexts.seen))
    state = trained.state._replace(kept=trained.state.kept._replace(contexts=known))
    before = jax.tree.map(np.array, state)
    parameters = parameters_with("oracle")
    given = trained._replace(state=state, parameters=parameters)
    played = play_episodes(*given, TINY, episodes=20, epsilon=1.0)
    heads = set()
    for i in range(20):
        score = 0
        for step in played.record(i):
            heads.add((score, step.head))
            score = step.score
    assert heads == {(0, 0), (10, 1)}
    for one, other in zip(jax.tree.leaves(before), jax.tree.leaves(state), strict=True):
        np.testing.assert_array_equal(one, other)


def test_episodes_end_with_the_game(trained: Trained) -> None:
    """Random admissible play wins level 1 now and then, before the limit of steps."""
    given = trained._replace(parameters=parameters_with("oracle"))
    played = play_episodes(*given, TINY, episodes=60, epsilon=1.0)
    assert 0 < played.won.sum() < 60
    assert played.max_score == 15
    for i in range(60):
        record = played.record(i)
        done = [name for step in record for name in step.subtasks]
        assert played.score[i] == sum(step.reward for step in record) == record[-1].score
        assert played.fraction[i] == len(done) / 2
        assert len(set(done)) == len(done)
        assert len(record) == played.steps[i] <= TINY_STEPS
        if played.won[i]:
            assert done == ["Enter the vegetable market.", "Put the lettuce on the counter."]
            assert "*** The End ***" in record[-1].text
            assert record[-1].command == "put lettuce on counter"
            assert not any("*** The End ***" in step.text for step in record[:-1])
        else:
            assert len(record) == TINY_STEPS
    assert played.steps[played.won].min() < TINY_STEPS


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"episodes": 0}, "episodes must be from 1 to 2147483647, not 0"),
        ({"epsilon": 1.5}, "epsilon lies from 0 to 1, not 1.5"),
        ({"seed": -1}, "seed lies from 0 to 2147483647, not -1"),
    ],
)
def test_wrong_values_are_refused(values: dict, says: str, trained: Trained) -> None:
    with pytest.raises(UsageError, match=says):
        play_episodes(*trained, TINY, **values)


# Transcripts, tables and the command line


def winning(trained: Trained) -> tuple[Evaluation, int]:
    given = trained._replace(parameters=parameters_with("oracle"))
    config = dataclasses.replace(TINY, gate="oracle")
    played = play_episodes(*given, config, episodes=60, epsilon=1.0)
    return played, int(np.flatnonzero(played.won)[0])


def test_a_transcript_has_all_of_every_step(trained: Trained) -> None:
    played, episode = winning(trained)
    record = played.record(episode)
    lines = list(tell(played, episode))
    texts = [text for text, _ in lines]
    assert texts[0] == played.opening
    assert [text[2:] for text in texts if text.startswith("> ")] == [s.command for s in record]
    assert texts[-1] == f"The game was won in {len(record)} steps, score 15/15."
    at = [i for i, text in enumerate(texts) if text.startswith("> ")]
    for step, start, end in zip(record, at, [*at[1:], len(texts) - 1], strict=True):
        block = lines[start:end]
        assert block[-1] == ("", None)
        assert block[-2] == (step.text, None)
        thoughts, style = block[1]
        assert style == "dim"
        number = "1 candidate" if step.candidates == 1 else f"{step.candidates} candidates"
        start = "  forced · " if step.forced else "  "
        top = ", ".join(f"{t.command} Q {t.value:.2f}" for t in step.top)
        assert thoughts == f"{start}head {step.head + 1} · {number} · {top}"  # No ξ̂: never trained.
        assert len(block) == (5 if step.subtasks else 4)
        if step.subtasks:
            gain = f"  +{step.reward}, score {step.score}/15. {step.subtasks[0]}"
            assert block[2] == (gain, "green")


def test_a_learned_gate_shows_what_it_thinks(trained: Trained) -> None:
    played = play_episodes(*trained, TINY)
    thought = played.record()[0].top[0]
    opinion = f"{thought.command} Q {thought.value:.2f} ξ̂ {thought.admissibility:.2f}"
    assert opinion in list(tell(played))[3][0]
    assert list(tell(played))[-1][0] == f"The game was not won in {TINY_STEPS} steps, score 0/15."


def test_a_brief_transcript_has_a_line_for_every_step(trained: Trained) -> None:
    played, episode = winning(trained)
    record = played.record(episode)
    lines = list(tell_briefly(played, episode))
    assert len(lines) == len(record) + 1
    for step, (text, style) in zip(record, lines, strict=False):
        words = [str(step.number), *step.command.split(), f"{step.score}/15"]
        assert text.split()[: len(words)] == words
        assert text.endswith(" ".join(step.subtasks))
        assert style == ("green" if step.subtasks else None)
        assert ("forced" in text) == step.forced


def test_a_run_as_rows_and_as_json(trained: Trained) -> None:
    greedy = play_episodes(*trained, TINY)
    played, _ = winning(trained)
    run = RunEvaluation("runs/a", 12_000, greedy, played)
    score, fraction, wins = played.score.mean(), played.fraction.mean(), played.won.sum()
    assert list(run.rows()) == [
        ("runs/a", "12,000", "greedy", "0", "15", "0.000", "no"),
        ("runs/a", "12,000", "ε 1", f"{score:.2f}", "15", f"{fraction:.3f}", f"{wins} of 60"),
    ]
    told = run.to_json(transcript=True)
    assert told.pop("transcript")[0]["command"] == greedy.record()[0].command
    exploring = {"epsilon": 1.0, "episodes": 60, "wins": wins}
    assert told == {
        "run": "runs/a",
        "steps": 12_000,
        "max_score": 15,
        "greedy": {"epsilon": 0.0, "episodes": 1, "score": 0.0, "fraction": 0.0, "wins": 0},
        "exploring": {**exploring, "score": score, "fraction": fraction},
    }
    only = RunEvaluation("runs/a", 12_000, greedy, None)
    assert len(list(only.rows())) == 1
    assert "exploring" not in only.to_json()


def test_eval_prints_a_table_of_all_runs(result: Result, capsys) -> None:
    folder = folder_of(result)
    assert entry.main(["eval", str(folder), "--episodes", str(SIZE)]) == 0
    shown = capsys.readouterr()
    lines = [line for line in shown.out.splitlines() if line.startswith("│")]
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines]
    assert [(row[1], row[2], row[4]) for row in cells] == [
        ("400", "greedy", "15"),
        ("400", "ε 0.1", "15"),
    ] * 2
    for run, row in zip(result.runs, cells[::2], strict=True):
        played = play_episodes(*run.trained[:4], TINY)
        won = "yes" if played.won[0] else "no"
        assert row[3:] == [f"{played.score[0]}", "15", f"{played.fraction[0]:.3f}", won]
    assert all(row[6].endswith(f" of {SIZE}") for row in cells[1::2])


def test_eval_of_one_run_as_json_is_the_same_every_time(result: Result, capsys) -> None:
    folder = result.runs[1].folder
    arguments = ["eval", str(folder), "--json", "--transcript", "--episodes", "6", "--seed", "4"]
    assert entry.main(arguments) == 0
    first = capsys.readouterr().out
    assert entry.main(arguments) == 0
    assert capsys.readouterr().out == first
    (told,) = json.loads(first)
    assert folder is not None
    assert told["run"] == folder.name
    assert told["steps"] == 400
    greedy = play_episodes(*result.runs[1].trained[:4], TINY, seed=4)
    assert told["greedy"]["score"] == greedy.score[0]
    assert [step["command"] for step in told["transcript"]] == [
        step.command for step in greedy.record()
    ]
    exploring = play_episodes(*result.runs[1].trained[:4], TINY, 6, 0.1, 4)
    assert told["exploring"] == {
        "epsilon": 0.1,
        "episodes": 6,
        "score": exploring.score.mean(),
        "fraction": exploring.fraction.mean(),
        "wins": exploring.won.sum(),
    }


def test_eval_shows_a_transcript(result: Result, capsys) -> None:
    assert entry.main(["eval", str(folder_of(result)), "--greedy", "--transcript"]) == 0
    shown = capsys.readouterr().out
    ends = shown.count(f"The game was not won in {TINY_STEPS} steps, score ")
    assert ends + shown.count("The game was won in ") == 2
    assert shown.count("\n> look\n  forced · head ") >= 2
    assert shown.count(" ξ̂ 0.") + shown.count(" ξ̂ 1.") >= 2 * TINY_STEPS
    assert "ε 0.1" not in shown


def test_eval_refuses_what_is_no_run_in_one_line(result: Result, tmp_path: Path, capsys) -> None:
    folder = result.runs[0].folder
    assert folder is not None
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    for path in (broken / "checkpoint").iterdir():
        path.write_bytes(path.read_bytes()[:-200])
    fresh = tmp_path / "fresh"
    shutil.copytree(folder, fresh)
    shutil.rmtree(fresh / "checkpoint")
    unread = tmp_path / "unread"
    unread.mkdir()
    (unread / "config.json").write_text("{")
    for path, code, says in (
        (tmp_path / "missing", 2, "missing is no run folder"),
        (broken, 1, str(broken)),
        (fresh, 1, "has no checkpoint yet"),
        (unread, 1, "config.json is damaged"),
    ):
        assert entry.main(["eval", str(path)]) == code
        shown = capsys.readouterr()
        assert says in shown.err
        assert shown.err.startswith("grue: ")
        assert shown.err.count("\n") == 1
        assert shown.out == ""
    assert entry.main(["eval", str(folder), "--episodes", "0"]) == 2
    assert entry.main(["eval"]) == 2


def folder_of(result: Result) -> Path:
    folder = result.runs[0].folder
    assert folder is not None
    return folder.parent


# The demo's last part


def test_the_demo_shows_a_play_that_wins_and_complains_of_others(trained: Trained, capsys) -> None:
    played, episode = winning(trained)
    for i, wins in ((episode, True), (int(np.flatnonzero(~played.won)[0]), False)):
        only = jax.tree.map(lambda leaf, i=i: leaf[i : i + 1], played.trace)
        one = dataclasses.replace(played, trace=only)
        if wins:
            demo.show(one, Path("runs/a"), Console())
            lines = capsys.readouterr().out.splitlines()
            assert lines[0] == "What it has learned, played greedily:"
            assert len(lines) == 2 + len(one.record())
            assert lines[-1].startswith("The game was won in ")
        else:
            with pytest.raises(GrueError, match=r"does not win: .* grue eval runs/a --transcript"):
                demo.show(one, Path("runs/a"), Console())


# Command by command


@pytest.fixture(scope="module")
def folder(result: Result) -> Path:
    found = result.runs[0].folder
    assert found is not None
    assert found.name == NAME
    return found


def played(player: grue.Player, epsilon: float = 0.0, number: int | None = None) -> list[tuple]:
    """An episode of the player, with all that a record of evaluation has too."""
    env, step, told = player.env, player.reset(number), []
    while not (step.terminated or step.truncated):
        action = player.act(step, epsilon)
        top, head = player.thoughts(), player.decision
        assert head is not None
        step = player.step(action)
        told.append((env.commands[action], step.text, int(step.score), int(head.head), top))
    return told


def same_play(told: list[tuple], record: tuple[PlayedStep, ...]) -> None:
    assert [row[0] for row in told] == [step.command for step in record]
    assert [row[1:4] for row in told] == [(step.text, step.score, step.head) for step in record]
    for row, step in zip(told, record, strict=True):
        top = row[4]
        assert len(top) == step.candidates
        assert [t.command for t in top[:3]] == [t.command for t in step.top]
        for name in ("value", "admissibility"):
            ours, theirs = ([getattr(t, name) for t in each] for each in (top[:3], step.top))
            if None in ours:
                assert ours == theirs
            else:
                assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-5)


def test_the_player_plays_what_evaluation_plays(folder: Path) -> None:
    greedy = grue.evaluate(folder)
    assert isinstance(greedy, Evaluation)
    player = grue.load_agent(folder)
    assert player.trained_steps == TINY.steps
    assert player.thoughts() == ()
    told = played(player)
    same_play(told, greedy.record())
    assert [row[0] for row in told][19::20] == ["look"] * (len(told) // 20)
    exploring = grue.evaluate(str(folder), episodes=SIZE, epsilon=0.3, seed=5)
    assert len(exploring) == SIZE
    player = grue.load_agent(str(folder), seed=5)
    same_play(played(player, 0.3, 1), exploring.record(1))
    same_play(played(player, 0.3, 0), exploring.record(0))


def test_a_run_that_was_not_written(result: Result, folder: Path) -> None:
    run = result.runs[0]
    held = type(run)(run.config, run.seed, run.metrics, None, _held=run.trained)
    same_play(played(grue.load_agent(held)), grue.evaluate(held).record())
    assert grue.evaluate(held).record() == grue.evaluate(folder).record()


def test_an_agent_that_is_told_more_than_the_feedback(trained: Trained) -> None:
    """li-tabular perceives look and inventory of the state after its command."""
    config = dataclasses.replace(TINY, agent="li-tabular", gate="none")
    agent = config.kind.make(Setup(trained.env, config.settings, registered_gates(), 1))
    known = trained.env, agent, agent.init(jax.random.key(0)), parameters_with("none")
    exploring = play_episodes(*known, config, epsilon=0.5, seed=3)
    same_play(played(Player((*known, 0), config, seed=3), 0.5), exploring.record())


def test_another_command_than_the_agents(folder: Path) -> None:
    player = grue.load_agent(folder)
    step = player.reset()
    assert step.text is not None
    assert step.text.startswith("You are making a salad.")
    player.act(step)
    away = player.env.commands.index("go north")
    step = player.step(away)
    assert player.act(step) in range(len(player.env.commands))
    assert player.decision is not None
    assert np.isfinite(player.decision.values).all()


def test_wrong_use_is_refused(folder: Path, tmp_path: Path) -> None:
    player = grue.load_agent(folder)
    opening = grue.load_agent(folder).reset()
    with pytest.raises(grue.UsageError, match=re.escape("no episode has begun: reset()")):
        player.act(opening)
    step = player.reset()
    with pytest.raises(grue.UsageError, match=re.escape("call act(step) first")):
        player.step(0)
    with pytest.raises(grue.UsageError, match=r"epsilon lies from 0 to 1, not 1\.5"):
        player.act(step, 1.5)
    player.act(step)
    with pytest.raises(grue.UsageError, match="a command is a number from 0 to 7, not 8"):
        player.step(8)
    with pytest.raises(grue.UsageError, match=re.escape("the episode is over: reset() begins")):
        player.act(step._replace(terminated=np.True_))
    with pytest.raises(grue.UsageError, match="episode lies from 0 to 2147483646, not -1"):
        player.reset(-1)
    with pytest.raises(grue.UsageError, match="seed lies from 0 to 2147483647, not -1"):
        grue.load_agent(folder, seed=-1)
    with pytest.raises(grue.UsageError, match="is no run folder: it has no config"):
        grue.load_agent(tmp_path)
    with pytest.raises(grue.UsageError, match="episodes must be from 1 to 2147483647, not 0"):
        grue.evaluate(folder, episodes=0)


def test_the_page(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """The part of docs/training.md that plays, on a run of its name."""
    monkeypatch.chdir(folder.parents[1])
    (block,) = [
        code
        for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
        if "load_agent" in code
    ]
    names: dict = {}
    exec(compile(block.replace('"runs/', f'"{folder.parent.name}/'), str(PAGE), "exec"), names)
    shown = capsys.readouterr().out.splitlines()
    commands = [step.command for step in grue.evaluate(folder).record()]
    assert [line.split(":")[0] for line in shown if ": Q " in line] == commands
    assert shown[-1].split()[-1] == str(names["played"].won.sum())
