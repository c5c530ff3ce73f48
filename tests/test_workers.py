"""Emulators in processes of their own: the same answers to the same questions, whatever happens."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import grue
from grue.engine import emulator_pool as workers
from grue.engine.compiled import CompiledEnv
from grue.engine.emulator_pool import MOST_FAILURES, EmulatorPool, Worker, worker_count
from grue.engine.emulator_process import AWAKE_SECONDS, OPENING, Ready, Spec
from grue.engine.environment import Environment
from grue.engine.hosted_textworld import HostedEnv
from grue.engine.pooled import PooledEnv
from grue.errors import GrueError
from grue.games.registry import load_textworld
from grue.games.tokens import StoryVocabulary

STEPS = 12
GAMES = 3


@pytest.fixture(scope="module")
def env(compiled: CompiledEnv) -> Iterator[PooledEnv]:
    """Two processes, of which one has a core of its own and stays awake."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers, "OTHER_CORES", workers.core_count() - 1)
        env = pooled(compiled, informed=True, workers=2)
        yield env
        env.close()


def pooled(compiled: CompiledEnv, **options: Any) -> PooledEnv:
    """The level with the words that its compiled twin has: to read its whole file takes longer."""
    words = StoryVocabulary.of_words(word.lower() for word in compiled.vocabulary.words)
    return PooledEnv(load_textworld("saladworld-1"), STEPS, vocabulary=words, **options)


@pytest.fixture(scope="module")
def compiled() -> CompiledEnv:
    return grue.make("saladworld-1", "compiled", STEPS)


@pytest.fixture(scope="module")
def play(env: PooledEnv) -> Callable[[Any], Any]:
    """Many games side by side, from the start: the steps, and the last states."""

    def one(commands: jax.Array) -> Any:
        return jax.lax.scan(env.step, env.reset()[0], commands)

    return jax.jit(jax.vmap(one))


def random_commands(env: PooledEnv, games: int = GAMES) -> jax.Array:
    return jax.random.randint(jax.random.key(1), (games, STEPS), 0, len(env.commands))


def test_both_engines_are_environments(env: PooledEnv, compiled: CompiledEnv) -> None:
    assert isinstance(env, Environment)
    assert isinstance(compiled, Environment)
    assert (env.commands, env.max_score) == (compiled.commands, compiled.max_score)
    assert env.subtask_names == compiled.subtask_names
    assert env.knows == compiled.knows


def test_games_play_as_in_one_process(
    env: PooledEnv, hosted: Callable[[int], HostedEnv], play: Callable[[Any], Any]
) -> None:
    commands = random_commands(env)
    states, steps = jax.device_get(play(commands))
    other = hosted(1)
    for game in range(GAMES):
        state, expected = other.reset()
        for number, command in enumerate(commands[game].tolist()):
            state, expected = other.step(state, command)
            found = jax.tree.map(lambda leaf: leaf[game, number], steps)  # noqa: B023
            assert env.decode(found.observation) == read(env, expected.text)
            assert (found.reward, found.score) == (expected.reward, expected.score)
            assert found.admissible == expected.admissible
            assert found.admissible_set.tolist() == expected.admissible_set.tolist()
            assert found.subtasks.tolist() == expected.subtasks.tolist()
            over = (expected.terminated, number + 1 == STEPS)
            assert (found.terminated, found.truncated) == over
        # Told without spending a step.
        last = jax.tree.map(lambda leaf: jnp.asarray(leaf[game]), states)  # noqa: B023
        assert env.decode(env.look(last)) == read(env, other.step(state, "look")[1].text)
        assert env.decode(env.inventory(last)) == read(env, other.step(state, "inventory")[1].text)


def read(env: PooledEnv, text: str | None) -> str:
    return env.decode(env.vocabulary.encode(text or ""))


def test_look_is_not_told_unasked(compiled: CompiledEnv) -> None:
    env = pooled(compiled, workers=1)
    with pytest.raises(grue.UsageError, match="opened with informed=True"):
        env.look(env.reset()[0])
    env.close()


def test_a_step_depends_on_its_arguments_alone(env: PooledEnv, play: Callable[[Any], Any]) -> None:
    commands = random_commands(env)
    state, steps = play(commands)
    again = play(commands)
    env.close()  # New processes know nothing of these games.
    fresh = play(commands)
    for other in (again, fresh):
        assert jax.tree.all(jax.tree.map(np.array_equal, (state, steps), other))
    # From the middle of a game that no process is at.
    step = jax.jit(env.step)
    half = jax.tree.map(lambda leaf: leaf[0], state)
    half = half._replace(steps=jnp.int32(5), over=jnp.bool_(False), score=jnp.int32(0))
    for _ in range(2):
        _, after = step(half, commands[0, 5])
        assert int(after.score) == int(steps.score[0, 5])
        np.testing.assert_array_equal(after.observation, steps.observation[0, 5])


def test_what_is_over_stays(env: PooledEnv) -> None:
    step = jax.jit(env.step)
    state, seen = env.reset()
    for name in env.game.walkthrough:
        state, seen = step(state, env.commands.index(name))
    assert bool(seen.terminated)
    assert int(seen.score) == env.max_score
    asked = env.pool.spent.asking
    after, still = step(state, 0)
    assert jax.tree.all(jax.tree.map(np.array_equal, state, after))
    assert (int(still.reward), bool(still.terminated), int(still.observation.sum())) == (0, True, 0)
    assert env.pool.spent.asking == asked


def test_a_killed_process_is_replaced(env: PooledEnv) -> None:
    step = jax.jit(jax.vmap(env.step))
    keys = jax.random.split(jax.random.key(0), GAMES)
    start, _ = jax.vmap(env.reset)(keys)
    south = jnp.full(GAMES, env.commands.index("go south"))
    state, before = step(start, south)
    env.notes()
    failures, pids = env.pool.failures, env.pool.processes
    os.kill(pids[0], signal.SIGKILL)
    state, seen = step(state, south)
    # Games 0 and 2 were in the first process.
    assert seen.truncated.tolist() == [True, False, True]
    assert not seen.terminated.any()
    assert state.lost.tolist() == [True, False, True]
    np.testing.assert_array_equal(seen.score, before.score)
    assert env.notes() == [
        "an emulator's subprocess was ended by signal 9: its 2 episodes end here, "
        "and a new one is started"
    ]
    assert env.pool.failures == failures + 1
    # They stay lost, and the next episodes play as ever.
    assert step(state, south)[1].truncated.tolist() == [True, False, True]
    fresh, _ = jax.vmap(env.restart)(state)
    again = step(fresh, south)[1]
    np.testing.assert_array_equal(again.observation, before.observation)
    assert not again.truncated.any()
    assert pids[0] not in env.pool.processes
    assert env.notes() == []


def test_a_process_that_stops_answering_is_replaced(
    env: PooledEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = jax.jit(env.step)
    look = env.commands.index("look")
    start, _ = env.reset()
    state, before = step(start, look)
    env.notes()
    patience = env.pool.seconds
    monkeypatch.setattr(env.pool, "seconds", 0.5)
    pid = env.pool.processes[0]
    os.kill(pid, signal.SIGSTOP)
    begun = time.monotonic()
    _, seen = step(state, look)
    assert (bool(seen.truncated), bool(seen.terminated)) == (True, False)
    assert 0.4 < time.monotonic() - begun < 60
    assert env.notes() == [
        "an emulator's subprocess did not answer in time: its episode ends here, "
        "and a new one is started"
    ]
    assert not alive(pid)
    monkeypatch.setattr(env.pool, "seconds", patience)
    np.testing.assert_array_equal(step(start, look)[1].observation, before.observation)


def test_waiting_awake_and_asleep() -> None:
    ours, theirs = Pipe()
    for awake in (False, True):
        ready = Ready(ours, awake)
        begun = time.monotonic()
        assert not ready.wait(0.05)
        assert 0.04 < time.monotonic() - begun < 30
        theirs.send_bytes(b"x")
        assert ready.wait(30.0)
        assert ours.recv_bytes() == b"x"
    theirs.close()
    assert Ready(ours, awake=False).wait(None)  # For there is something to learn: that it is gone.
    with pytest.raises(EOFError):
        ours.recv_bytes()


def test_a_process_that_is_awake_falls_asleep(env: PooledEnv) -> None:
    first, second = Worker(env.pool.spec, awake=True), Worker(env.pool.spec)
    for worker in (first, second):
        worker.wait()
        command = Path(f"/proc/{worker.process.pid}/cmdline").read_text()
        assert f", {worker is first})" in command
        worker.end()
    jax.jit(env.step)(env.reset()[0], 0)
    pid = env.pool.processes[0]
    time.sleep(5 * AWAKE_SECONDS)
    before = processor_seconds(pid)
    time.sleep(0.5)
    assert processor_seconds(pid) - before < 0.2


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_game_that_always_fails_is_given_up(env: PooledEnv) -> None:
    """A command that there is not: the process lives, and says what is wrong."""
    step = jax.jit(env.step)
    state, _ = env.reset()
    seen = step(state, 9999)[1]
    assert bool(seen.truncated)
    (note,) = env.notes()
    assert note.startswith("an emulator failed (IndexError: ")
    env.check()
    for _ in range(MOST_FAILURES):
        assert bool(step(state, 9999)[1].truncated)
    with pytest.raises(GrueError, match=f"failed {MOST_FAILURES} times in a row; the last time an"):
        env.check()
    assert len(env.notes()) == MOST_FAILURES - 1
    # What was given up stays so.
    assert bool(step(state, 0)[1].truncated)
    env.close()
    env.check()
    assert not bool(step(state, 0)[1].truncated)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


def gone(pids: list[int], seconds: float = 60.0) -> bool:
    until = time.monotonic() + seconds
    while any(map(alive, pids)) and time.monotonic() < until:
        time.sleep(0.05)
    return not any(map(alive, pids))


def test_closing_ends_all_processes(env: PooledEnv, play: Callable[[Any], Any]) -> None:
    jax.block_until_ready(play(random_commands(env)))
    pids = env.pool.processes
    assert len(pids) == 2
    assert all(map(alive, pids))
    env.close()
    assert not any(map(alive, pids))
    assert env.pool.processes == []


OTHER_PROGRAM = """
import sys, time
from grue.engine.emulator_process import Spec
from grue.engine.emulator_pool import EmulatorPool
from grue.games.registry import load
from grue.games.tokens import StoryVocabulary
pool = EmulatorPool(Spec(load("saladworld-1"), 5, StoryVocabulary.of_words(()), 8, False), 1)
pool.facts()
assert "jax" not in sys.modules
print(*pool.processes, flush=True)
{then}
"""


@pytest.mark.parametrize("how", ["killed", "done"])
def test_no_process_outlives_the_program(how: str) -> None:
    """No guard around the main program is needed either: it is not run again by the processes."""
    then = "time.sleep(600)" if how == "killed" else ""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    program = subprocess.Popen(
        [sys.executable, "-c", OTHER_PROGRAM.format(then=then)],
        stdout=subprocess.PIPE,
        env=environment,
    )
    assert program.stdout is not None
    pids = list(map(int, program.stdout.readline().split()))
    assert len(pids) == 1
    if how == "killed":
        assert all(map(alive, pids))
        program.kill()
    assert program.wait(60) == (-9 if how == "killed" else 0)
    program.stdout.close()
    assert gone(pids)


def test_processes_that_cannot_start(tmp_path: Path) -> None:
    story = load_textworld("saladworld-1").story
    for suffix in (".z8", ".json"):
        shutil.copy(story.with_suffix(suffix), tmp_path)
    game = load_textworld(tmp_path / story.name)
    game.story.rename(tmp_path / "elsewhere.z8")
    pool = EmulatorPool(Spec(game, STEPS, StoryVocabulary.of_words(()), 8, False), 1)
    with pytest.raises(GrueError, match=r"ended with code 1: FileNotFoundError: .* at its start"):
        pool.facts()
    assert pool.processes == []


def test_as_many_processes_as_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRUE_WORKERS", raising=False)
    assert worker_count() == len(os.sched_getaffinity(0))
    monkeypatch.setenv("GRUE_WORKERS", "7")
    assert worker_count() == 7
    for wrong in ("0", "many", "-1", "1.5"):
        monkeypatch.setenv("GRUE_WORKERS", wrong)
        with pytest.raises(grue.UsageError, match="give a number of subprocesses"):
            worker_count()


def test_openings_are_asked_for(env: PooledEnv, hosted: Callable[[int], HostedEnv]) -> None:
    asked = np.zeros(1, env.pool.question)
    asked["action"] = OPENING
    turn = env.pool.ask(asked)[0]
    text = hosted(1).reset()[1].text
    assert env.decode(turn["observation"]) == read(env, text)
    assert env.decode(env.reset()[1].observation) == env.decode(turn["observation"])


def test_long_texts_lose_their_end(compiled: CompiledEnv) -> None:
    env = pooled(compiled, observation_length=6, workers=1)
    assert env.decode(env.reset()[1].observation) == "you are making a salad."
    env.close()
