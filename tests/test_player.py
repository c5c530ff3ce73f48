"""A trained agent that plays command by command: what evaluation plays, and what it thinks."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_runs import NAME, TINY

import grue
from grue.training import evaluate as evaluating
from grue.training.evaluate import Evaluation, PlayedStep
from grue.training.train import Result, train

PAGE = Path(__file__).parents[1] / "docs" / "training.md"


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return train(replace(TINY, seeds=(0,)), tmp_path_factory.mktemp("runs"))


@pytest.fixture(autouse=True)
def one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many episodes are asked for."""
    monkeypatch.setattr(evaluating, "AT_ONCE", 1)


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


def same(told: list[tuple], record: tuple[PlayedStep, ...]) -> None:
    assert [row[0] for row in told] == [step.command for step in record]
    assert [row[1:4] for row in told] == [(step.text, step.score, step.head) for step in record]
    for row, step in zip(told, record, strict=True):
        top = row[4]
        assert len(top) == step.candidates
        assert [t.command for t in top[:3]] == [t.command for t in step.top]
        for name in ("value", "admissibility"):
            ours, theirs = ([getattr(t, name) for t in each] for each in (top[:3], step.top))
            assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-5)


def test_the_player_plays_what_evaluation_plays(folder: Path) -> None:
    greedy = grue.evaluate(folder)
    assert isinstance(greedy, Evaluation)
    player = grue.load_agent(folder)
    assert player.trained_steps == TINY.steps
    assert player.thoughts() == ()
    told = played(player)
    same(told, greedy.record())
    assert [row[0] for row in told][19::20] == ["look"] * (len(told) // 20)
    exploring = grue.evaluate(str(folder), episodes=2, epsilon=0.3, seed=5)
    assert len(exploring) == 2
    player = grue.load_agent(str(folder), seed=5)
    same(played(player, 0.3, 1), exploring.record(1))
    same(played(player, 0.3, 0), exploring.record(0))


def test_a_run_that_was_not_written(result: Result, folder: Path) -> None:
    run = result.runs[0]
    held = type(run)(run.config, run.seed, run.metrics, None, run.trained)
    same(played(grue.load_agent(held)), grue.evaluate(held).record())
    assert grue.evaluate(held).record() == grue.evaluate(folder).record()


def test_an_agent_that_is_told_more_than_the_feedback(tmp_path: Path) -> None:
    """li-tabular perceives look and inventory of the state after its command."""
    run = train(replace(TINY, agent="li-tabular", gate="none", seeds=(0,)), tmp_path)
    folder = run.runs[0].folder
    assert folder is not None
    exploring = grue.evaluate(folder, epsilon=0.5, seed=3)
    same(played(grue.load_agent(folder, seed=3), 0.5), exploring.record())


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
    with pytest.raises(grue.UsageError, match="episodes must be at least 1, not 0"):
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
