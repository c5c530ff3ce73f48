"""Masked recurrent PPO on thousands of compiled games at once, in one file.

    python examples/ppo.py --game saladworld-1 --out results/ppo/level-1.json

In the style of PureJaxRL: the games are stepped on the device, so a rollout of all of them and the
updates that follow are one jitted function. Needs optax besides grue.

The policy is a softmax over the commands that the game says are admissible now. That is the ORACLE:
no player is told it. ``--all-commands`` leaves it out. The network sees the bag of words of the
feedback, the previous command and the score, and remembers by a GRU.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import grue
from grue.engine.step import Step
from grue.games.tokens import PADDING
from grue.training.provenance import about


@dataclass(frozen=True)
class Config:
    game: str = "saladworld-1"
    envs: int = 1024
    """Games side by side."""
    rollout: int = 32
    """Steps of each game between two updates."""
    frames: int = 3_000_000
    """Steps of all games together."""
    seed: int = 0
    all_commands: bool = False
    """The policy is over all commands, not only the admissible ones."""
    until: float = 2.0
    """Stops when episodes reach this fraction of the maximal score on average."""
    units: int = 128
    learning_rate: float = 0.001
    discount: float = 0.97
    trace: float = 0.9
    """λ of the advantages."""
    clip: float = 0.2
    entropy: float = 0.01
    epochs: int = 2
    minibatches: int = 4
    out: str = ""
    """A .json file for the curve."""


class Seen(NamedTuple):
    """What the network is told before a step."""

    words: Any
    """How often each word is in the feedback."""
    previous: Any
    score: Any
    begins: Any
    mask: Any


class Network(eqx.Module):
    """Words, previous command and score; a GRU over time; logits of the commands and a value."""

    words: jax.Array
    commands: jax.Array
    score: jax.Array
    memory: eqx.nn.GRUCell
    policy: eqx.nn.Linear
    value: eqx.nn.Linear

    def __init__(self, words: int, commands: int, units: int, key: jax.Array) -> None:
        keys = jax.random.split(key, 5)
        self.words = jax.random.normal(keys[0], (words, units)) / 4
        self.commands = jax.random.normal(keys[1], (commands, units)) / 4
        self.score = jnp.zeros(units)
        self.memory = eqx.nn.GRUCell(units, units, key=keys[2])
        self.policy = eqx.nn.Linear(units, commands, key=keys[3])
        self.value = eqx.nn.Linear(units, 1, key=keys[4])

    def __call__(self, h: jax.Array, seen: Seen) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Of one game: h, the logits and the value. Memory is empty where an episode begins."""
        previous = jax.nn.one_hot(seen.previous, len(self.commands))  # None before the first.
        told = seen.words @ self.words + previous @ self.commands + seen.score * self.score
        h = self.memory(jnp.tanh(told), jnp.where(seen.begins, 0.0, h))
        logits = jnp.where(seen.mask, self.policy(h), -1e9)
        return h, logits, self.value(h)[0]


class Moment(NamedTuple):
    """A step of the rollout. ``chance`` is the logarithm of the command's probability."""

    seen: Seen
    action: Any
    chance: Any
    value: Any
    step: Step
    """What followed."""


class Train(NamedTuple):
    """All that changes."""

    network: Network
    optimiser: Any
    games: Any
    step: Step
    previous: Any
    begins: Any
    h: Any
    key: jax.Array


class Ppo:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.env = grue.make(config.game, engine="compiled")
        self.commands, self.words = len(self.env.commands), len(self.env.vocabulary)
        self.scale = 1.0 / (self.env.max_score or 1)
        adam = optax.adam(config.learning_rate)
        self.optimiser = optax.chain(optax.clip_by_global_norm(0.5), adam)
        self.init = jax.jit(self._init)
        self.update = jax.jit(self._update, donate_argnums=0)

    def _init(self, seed: int) -> Train:
        config = self.config
        key, own, games = jax.random.split(jax.random.key(seed), 3)
        network = Network(self.words, self.commands, config.units, own)
        state, step = jax.vmap(self.env.reset)(jax.random.split(games, config.envs))
        optimiser = self.optimiser.init(eqx.filter(network, eqx.is_array))
        nothing = jnp.full(config.envs, -1, jnp.int32), jnp.ones(config.envs, bool)
        h = jnp.zeros((config.envs, config.units))
        return Train(network, optimiser, state, step, *nothing, h, key)

    def _update(self, train: Train) -> tuple[Train, dict[str, jax.Array]]:
        """A rollout of all games, then some epochs on it."""
        before = train.h
        train, moments = jax.lax.scan(self.play, train, None, self.config.rollout)
        _, _, last = jax.vmap(train.network)(train.h, self.seen(train))
        data = moments, *self.advantages(moments, last)
        key, *keys = jax.random.split(train.key, self.config.epochs + 1)
        learn = partial(self.epoch, before, data)
        learned = jax.lax.scan(learn, (train.network, train.optimiser), jnp.stack(keys))[0]
        return Train(*learned, *train[2:])._replace(key=key), self.told(moments)

    def seen(self, train: Train) -> Seen:
        step = train.step
        mask = jnp.ones_like(step.admissible_set)
        if not self.config.all_commands:
            # Nothing may be admissible: then all commands may be tried.
            mask = step.admissible_set | ~step.admissible_set.any(-1, keepdims=True)
        rows = jnp.arange(self.config.envs)[:, None]
        words = jnp.zeros((self.config.envs, self.words)).at[rows, step.observation].add(1.0)
        words = words.at[:, PADDING].set(0.0)
        return Seen(words, train.previous, step.score * self.scale, train.begins, mask)

    def play(self, train: Train, _: None) -> tuple[Train, Moment]:
        """One step of every game. A game that is over begins anew."""
        seen = self.seen(train)
        h, logits, value = jax.vmap(train.network)(train.h, seen)
        key, own = jax.random.split(train.key)
        action = jax.random.categorical(own, logits)
        chance = picked(jax.nn.log_softmax(logits), action)
        games, step = jax.vmap(self.env.step)(train.games, action)
        over = step.terminated | step.truncated
        anew = jax.vmap(self.env.restart)(games)
        games, following = jax.tree.map(partial(choose, over), anew, (games, step))
        previous = jnp.where(over, -1, action)
        train = Train(train.network, train.optimiser, games, following, previous, over, h, key)
        return train, Moment(seen, action, chance, value, step)

    def advantages(self, moments: Moment, last: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Generalised advantages, and the returns."""
        config = self.config

        def back(carry: Any, at: Moment) -> Any:
            later, value = carry
            ended, cut = at.step.terminated, at.step.truncated
            # The game goes on after a time limit. Its next state was not seen: this one stands in.
            value = jnp.where(ended, 0.0, jnp.where(cut, at.value, value))
            error = at.step.reward * self.scale + config.discount * value - at.value
            later = error + config.discount * config.trace * jnp.where(ended | cut, 0.0, later)
            return (later, at.value), later

        start = jnp.zeros_like(last), last
        advantages = jax.lax.scan(back, start, moments, reverse=True)[1]
        return advantages, advantages + moments.value

    def epoch(self, before: jax.Array, data: Any, learned: Any, key: jax.Array) -> Any:
        """Every game once, in minibatches of whole sequences."""
        config = self.config
        order = jax.random.permutation(key, config.envs).reshape(config.minibatches, -1)

        def minibatch(learned: Any, games: jax.Array) -> Any:
            network, optimiser = learned
            part = jax.tree.map(lambda leaf: leaf[:, games], data)
            slope = eqx.filter_grad(self.loss)(network, before[games], *part)
            changes, optimiser = self.optimiser.update(slope, optimiser)
            return (eqx.apply_updates(network, changes), optimiser), None

        return jax.lax.scan(minibatch, learned, order)[0], None

    def loss(
        self, network: Network, h: jax.Array, moments: Moment, advantage: Any, returns: Any
    ) -> jax.Array:
        """PPO's clipped objective, the error of the value, and the entropy."""
        config = self.config

        def step(h: jax.Array, seen: Seen) -> Any:
            h, logits, value = jax.vmap(network)(h, seen)
            return h, (logits, value)

        _, (logits, value) = jax.lax.scan(step, h, moments.seen)
        chances = jax.nn.log_softmax(logits)
        ratio = jnp.exp(picked(chances, moments.action) - moments.chance)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        bounded = jnp.clip(ratio, 1 - config.clip, 1 + config.clip)
        gain = jnp.minimum(ratio * advantage, bounded * advantage).mean()
        entropy = -(jnp.exp(chances) * jnp.where(moments.seen.mask, chances, 0.0)).sum(-1).mean()
        return jnp.square(value - returns).mean() - gain - config.entropy * entropy

    def told(self, moments: Moment) -> dict[str, jax.Array]:
        """Sums over the episodes that ended in the rollout."""
        over = moments.step.terminated | moments.step.truncated
        fraction = jnp.where(over, moments.step.score * self.scale, 0.0)
        return {"episodes": over.sum(), "score": fraction.sum(), "won": (fraction >= 1).sum()}


def picked(values: jax.Array, action: jax.Array) -> jax.Array:
    return jnp.take_along_axis(values, action[..., None], -1)[..., 0]


def choose(which: jax.Array, one: Any, other: Any) -> jax.Array:
    return jnp.where(which.reshape(-1, *[1] * (jnp.ndim(other) - 1)), one, other)


def train(config: Config) -> dict[str, Any]:
    """The curve: a row for each update. Seconds count from the start and include compiling.

    ``fraction`` is of the maximal score, over the episodes that ended in the last so many steps as
    an episode may have: of fewer, most would be those that were won quickly.
    """
    start, ppo = time.perf_counter(), Ppo(config)
    now, rows, ended = ppo.init(config.seed), [], []
    window = math.ceil(ppo.env.episode_steps / config.rollout)
    while len(rows) * config.envs * config.rollout < config.frames:
        now, told = ppo.update(now)
        ended.append(jax.tree.map(float, told))
        episodes, *sums = (
            sum(row[name] for row in ended[-window:]) for name in ("episodes", "score", "won")
        )
        fraction, won = (round(total / max(episodes, 1), 4) for total in sums)
        frames = len(ended) * config.envs * config.rollout
        seconds = round(time.perf_counter() - start, 2)
        rows.append({"frames": frames, "seconds": seconds, "fraction": fraction, "won": won})
        print(f"{frames:>12,} {seconds:8.1f} s   {fraction:.3f} of the score", flush=True)
        if len(rows) > window and fraction >= config.until:
            break
    frames, spent = (rows[-1][name] - rows[0][name] for name in ("frames", "seconds"))
    return {"frames_per_second": round(frames / spent) if spent else None, "rows": rows}


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    for field in fields(Config):
        flag, kind = "--" + field.name.replace("_", "-"), type(field.default)
        more: Any = {"action": "store_true"} if kind is bool else {"type": kind}
        parser.add_argument(flag, default=field.default, **more)
    config = Config(**vars(parser.parse_args(arguments)))
    counts = ("envs", "rollout", "frames", "units", "epochs", "minibatches")
    for name in (name for name in counts if getattr(config, name) < 1):
        parser.error(f"--{name} must be at least 1, not {getattr(config, name)}")
    if config.envs % config.minibatches:
        parser.error(f"--envs must be a multiple of --minibatches, not {config.envs}")
    typed = sys.argv[1:] if arguments is None else arguments
    command = " ".join(["python", "examples/ppo.py", *typed])
    try:
        found = {"command": command, "config": asdict(config), "about": about(), **train(config)}
    except grue.UsageError as error:
        parser.error(str(error))
    if config.out:
        Path(config.out).parent.mkdir(parents=True, exist_ok=True)
        Path(config.out).write_text(json.dumps(found, indent=1) + "\n")
    return found


if __name__ == "__main__":
    main()
