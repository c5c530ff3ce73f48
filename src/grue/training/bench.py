"""Measures the speed of training, and the arithmetic that an update needs.

The arithmetic is counted from sampled batches: each distinct text once and without padding, one
head for each step, no scores for the minimum history. Only matrix products count: 2mkn operations
for m×k times k×n.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import jax
import jax.numpy as jnp

from grue.agents.catalogue import AGENTS
from grue.agents.deep import DeepAgent
from grue.agents.kernels.select import working_dtype
from grue.agents.learner import distinct_texts
from grue.engine.bench import device_name
from grue.engine.pooled import PooledEnv
from grue.errors import UsageError
from grue.training import memory
from grue.training.algorithm import Run
from grue.training.config import TrainConfig
from grue.training.programs import build, explorers_of, parameters_of, program_key

ROUNDS = 9
"""Everything is timed once in each round."""
WARM_UP = 2_000
"""Random steps before the timing, to fill the replay memory."""


class TrainSpeed(NamedTuple):
    agent: str
    gate: str
    game: str
    runs: int
    ms_per_update: float
    steps_per_s: float
    """All runs together, as is gflop_per_update."""
    gflop_per_update: float
    matrix_gflops: float
    """GFLOP/s of a large matrix product on this device."""
    ratio: float
    """GFLOP/s of the update divided by matrix_gflops."""
    device: str


class Bench:
    """A compiled program and runs with a filled replay memory, ready to be timed."""

    def __init__(self, conditions: Sequence[TrainConfig], runs: int) -> None:
        """Run i has the condition i modulo their number."""
        used = conditions[:runs]
        if len({program_key(config) for config in used}) > 1:
            raise UsageError("these agents and gates cannot share a program; give --runs 1")
        self.many = runs > 1
        heads = max(config.heads_in_use for config in used)
        memory.check_fits(used[0], heads, runs, explorers_of(used[:1]))
        chosen = [conditions[i % len(conditions)] for i in range(runs)]
        self.env, agent, self.program = build(chosen[0], heads, self.many)
        assert isinstance(agent, DeepAgent)
        self.agent, self.settings, self.runs = agent, chosen[0], runs
        self.conditions = conditions
        self.gates = [config.gate_kind for config in chosen]
        each = [parameters_of(config) for config in chosen]
        parameters = jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)
        seeds = jnp.arange(runs, dtype=jnp.int32)
        if not self.many:
            parameters, seeds = jax.tree.map(lambda leaf: leaf[0], (parameters, seeds))
        self.run: Run = self.program.init(seeds, parameters)
        self.step = 0
        self.hosting: dict[str, float] | None = None
        """For a hosted game: milliseconds per step of all runs, by part."""
        while self.step < WARM_UP:
            self.advance(learn=False)

    def advance(self, learn: bool) -> float:
        """Seconds for one row of metrics."""
        steps = self.settings.metrics_every
        asked, played = self._spent()
        start = time.perf_counter()
        self.run, sums = self.program.advance(self.run, jnp.int32(self.step), learn, steps)
        self.step += steps
        jax.block_until_ready((self.run.agent.learned, sums))
        seconds = time.perf_counter() - start
        if isinstance(self.env, PooledEnv):
            asking, playing = self._spent()
            emulator, pipes = playing - played, (asking - asked) - (playing - played)
            parts = {"emulator": emulator, "pipes": pipes, "agent": seconds - emulator - pipes}
            self.hosting = {name: round(part / steps * 1e3, 4) for name, part in parts.items()}
        return seconds

    def _spent(self) -> tuple[float, float]:
        if not isinstance(self.env, PooledEnv):
            return 0.0, 0.0
        return self.env.pool.spent.asking, self.env.pool.spent.playing

    def typical(self, attempts: Sequence[tuple[float, float]]) -> tuple[float, float]:
        """Seconds per update and steps per second: the medians of the attempts.

        An attempt has the seconds of a row of metrics without learning and of one with it.
        """
        updates = self.settings.metrics_every // self.settings.update_every
        steps = self.runs * self.settings.metrics_every
        learning = median(learned - played for played, learned in attempts)
        return max(learning, 0.0) / updates, steps / median(learned for _, learned in attempts)

    def flop_per_update(self) -> float:
        """Operations of one update of all runs: the mean over a few batches."""
        draw = jax.jit(jax.vmap(self._words) if self.many else self._words)
        words = float(jnp.sum(draw(self.run)))
        beyond = sum(self._flop_beyond_words(gate.classifier) for gate in self.gates)
        # Φ_R: θ forward and backward (three times the forward work), θ⁻ forward.
        encoder = self.agent.sizes.encoder
        return 4 * words * 2 * encoder * 4 * encoder + beyond

    def _words(self, run: Run) -> jax.Array:
        """Number of words in the distinct texts of a batch."""
        commands = jnp.asarray(self.agent.command_words)
        reads = run.agent.learned.network.scorer.reads_commands

        def one(key: jax.Array) -> jax.Array:
            batch = self.agent.sample(run.agent, run.parameters, key)
            return distinct_texts(batch, commands, self.agent.look, reads).pool.words

        return jax.lax.map(one, jax.random.split(jax.random.key(7), 8)).mean()

    def _flop_beyond_words(self, classifier: bool) -> float:
        s, sizes = self.agent.settings, self.agent.sizes
        rows, after = s.batch_size * s.sequence_length, s.batch_size
        context = 2 * (2 * sizes.encoder + sizes.context) * 4 * sizes.context
        scorer = 2 * (sizes.context * sizes.hidden + sizes.hidden * sizes.commands)
        unscored = 0 if s.first_steps else s.minimum_history
        scored = s.batch_size * (s.sequence_length - unscored)
        classified = 3 if classifier else 0
        return float(
            context * (3 * rows + rows + after)
            + scorer * (3 * scored + scored + after)
            + scorer * classified * scored
        )


def check_timed(agent: str) -> None:
    """Only agents with the recurrent network can be timed."""
    deep = [
        name
        for name, kind in AGENTS.items()
        if isinstance(kind.make, type) and issubclass(kind.make, DeepAgent)
    ]
    AGENTS.find(agent)
    if agent not in deep:
        raise UsageError(f"only {', '.join(deep)} have updates to time, not {agent!r}")


def measure_in_turn(benches: Sequence[Bench]) -> tuple[list[tuple[float, float]], float]:
    """Seconds per update and steps per second of each, and the rate of a matrix product.

    They are timed in turn, so that other load on the machine affects all of them alike.
    """
    for bench in benches:
        bench.advance(learn=True)  # Compiles.
    rounds = [
        (
            [(bench.advance(learn=False), bench.advance(learn=True)) for bench in benches],
            matrix_rate(),
        )
        for _ in range(ROUNDS)
    ]
    attempts = zip(*(each for each, _ in rounds), strict=True)
    timed = [bench.typical(each) for bench, each in zip(benches, attempts, strict=True)]
    return timed, median(rate for _, rate in rounds)


def row_of(bench: Bench, timed: tuple[float, float], rate: float) -> TrainSpeed:
    seconds, steps = timed
    flop = bench.flop_per_update()
    return TrainSpeed(
        ",".join(dict.fromkeys(config.agent for config in bench.conditions)),
        ",".join(dict.fromkeys(config.gate for config in bench.conditions)),
        bench.settings.game,
        bench.runs,
        round(seconds * 1e3, 3),
        round(steps, 1),
        round(flop / 1e9, 3),
        round(rate / 1e9, 1),
        round(flop / seconds / rate, 3),
        device_name(),
    )


def floors(bench: Bench, rate: float) -> dict[str, float]:
    """Lower bounds for an update in milliseconds: its arithmetic, and Adam's memory traffic.

    Adam reads the weights, both moments and the gradient, and writes the first three.
    """
    weights = sum(leaf.size for leaf in jax.tree.leaves(bench.run.agent.learned.network))
    return {
        "arithmetic": round(bench.flop_per_update() / rate * 1e3, 4),
        "optimise": round(7 * 4 * weights / memory_rate() * 1e3, 4),
    }


def memory_rate() -> float:
    """Bytes per second, read and written, when 1 is added to a large array."""
    size = 2**26 if jax.default_backend() == "cpu" else 2**29
    array = jnp.zeros(size, jnp.float32)
    add = jax.jit(lambda a: a + 1, donate_argnums=0)
    array = add(array).block_until_ready()
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        array = add(array).block_until_ready()
        best = min(best, time.perf_counter() - start)
    return 2 * 4 * size / best


def matrix_rate() -> float:
    """Operations per second of large matrix products in the dtype of the context LSTM."""
    dtype = working_dtype("auto")
    size, times = (2048, 8) if jax.default_backend() == "cpu" else (8192, 40)
    left = jnp.ones((size, size), dtype)
    jnp.matmul(left, left).block_until_ready()
    start = time.perf_counter()
    for _ in range(times):
        done = jnp.matmul(left, left)
    done.block_until_ready()
    return times * 2 * size**3 / (time.perf_counter() - start)
