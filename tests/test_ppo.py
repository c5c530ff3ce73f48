"""The example of PPO: its advantages by hand, its memory, and that it solves level 1."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import ppo
import pytest

from grue.engine.step import Step

TINY = ppo.Config(envs=4, rollout=6, units=8, minibatches=2)


@pytest.fixture(scope="module")
def tiny() -> ppo.Ppo:
    return ppo.Ppo(TINY)


@pytest.fixture(scope="module")
def played(tiny: ppo.Ppo) -> tuple[ppo.Train, ppo.Train, ppo.Moment]:
    """Before and after two rollouts, with what happened in the second: no memory is empty."""
    scan = jax.jit(lambda train: jax.lax.scan(tiny.play, train, None, TINY.rollout))
    before, _ = scan(tiny.init(0))
    return before, *scan(before)


def test_the_file_is_short() -> None:
    assert len(Path(ppo.__file__).read_text().splitlines()) <= 300


def moments(rewards: list[float], values: list[float], **ends: list[bool]) -> ppo.Moment:
    """Of one game."""
    none = [False] * len(rewards)
    column = {
        name: jnp.array(ends.get(name, none))[:, None] for name in ("terminated", "truncated")
    }
    step = Step(None, None, jnp.array(rewards)[:, None], None, *column.values(), *[None] * 3)
    return ppo.Moment(None, None, None, jnp.array(values)[:, None], step)  # pyright: ignore[reportArgumentType]


def test_advantages_by_hand(tiny: ppo.Ppo) -> None:
    """γ = 0.97, λ = 0.9; rewards are fractions of the maximal score."""
    full = float(tiny.env.max_score or 0)
    last = jnp.array([4.0])
    found, returns = tiny.advantages(moments([0.0, full], [1.0, 2.0]), last)
    second = 1 + 0.97 * 4 - 2
    first = 0.97 * 2 - 1 + 0.97 * 0.9 * second
    np.testing.assert_allclose(found[:, 0], [first, second], rtol=1e-6)
    np.testing.assert_allclose(returns[:, 0], [first + 1, second + 2], rtol=1e-6)
    # The game is won by the first step: what follows is another episode.
    won, _ = tiny.advantages(moments([full, 0.0], [1.0, 2.0], terminated=[True, False]), last)
    np.testing.assert_allclose(won[:, 0], [1 - 1, 0.97 * 4 - 2], rtol=1e-6, atol=1e-7)
    # At a time limit it would have gone on, from a state like this one.
    cut, _ = tiny.advantages(moments([0.0, 0.0], [1.0, 2.0], truncated=[True, False]), last)
    np.testing.assert_allclose(cut[:, 0], [0.97 - 1, 0.97 * 4 - 2], rtol=1e-6)


def test_learning_sees_what_playing_saw(tiny: ppo.Ppo, played) -> None:
    """The memory is rebuilt from where the rollout began: all probabilities are the same."""
    before, after, seen = played

    def step(h: jax.Array, one: ppo.Seen):
        h, logits, _ = jax.vmap(before.network)(h, one)
        return h, logits

    h, logits = jax.lax.scan(step, before.h, seen.seen)
    np.testing.assert_allclose(h, after.h, rtol=1e-5, atol=1e-6)
    chances = ppo.picked(jax.nn.log_softmax(logits), seen.action)
    np.testing.assert_allclose(chances, seen.chance, rtol=1e-4, atol=1e-5)
    assert float(jnp.abs(before.h).max()) > 0


def test_only_admissible_commands_are_tried(played) -> None:
    before, _, seen = played
    assert ppo.picked(seen.seen.mask, seen.action).all()
    assert not seen.seen.mask.all()
    assert (seen.step.admissible | ~seen.seen.mask.any(-1)).all()
    assert ppo.Ppo(replace(TINY, all_commands=True)).seen(before).mask.all()


def test_words_are_counted_without_padding(tiny: ppo.Ppo) -> None:
    train = tiny.init(0)
    words = np.asarray(tiny.seen(train).words)
    tokens = np.asarray(train.step.observation)
    counts = np.bincount(tokens[0][tokens[0] != 0], minlength=tiny.words)
    np.testing.assert_array_equal(words[0], counts)


@pytest.mark.slow
def test_it_solves_level_1(tmp_path: Path, capsys) -> None:
    out = tmp_path / "some" / "curve.json"
    options = ["--envs", "128", "--units", "64", "--frames", "400000", "--until", "0.9"]
    found = ppo.main([*options, "--seed", "3", "--out", str(out)])
    stored = json.loads(out.read_text())
    assert stored == found
    assert stored["command"].startswith("python examples/ppo.py --envs 128")
    assert stored["config"]["seed"] == 3
    assert {"commit", "device", "jax"} <= stored["about"].keys()
    first, last = stored["rows"][0], stored["rows"][-1]
    assert first["frames"] == 128 * 32
    assert last["fraction"] >= 0.9
    assert last["frames"] < 400_000
    assert len(capsys.readouterr().out.splitlines()) == len(stored["rows"])


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--envs", "6"], "--envs must be a multiple of --minibatches, not 6"),
        (["--frames", "0"], "--frames must be at least 1, not 0"),
        (["--game", "saladworld-9"], "saladworld-9"),
    ],
)
def test_refused(options: list[str], why: str, capsys) -> None:
    with pytest.raises(SystemExit) as error:
        ppo.main(options)
    assert error.value.code == 2
    assert why in capsys.readouterr().err
