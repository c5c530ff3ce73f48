"""How long runs take, from measured rates.

The rows come from the study's own folder (``rates.jsonl``, written after every task), and from the
benchmarks in ``results/bench`` that come with grue. For devices and networks that were not measured
there is an estimate from the arithmetic of an update, good enough to order the tasks.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from grue.errors import BrokenFileError
from grue.experiments.data_files import shipped
from grue.files import read_plain
from grue.training.config import TrainConfig

NAME = "rates.jsonl"
BENCHMARKS = ("train-h200.json", "train-cpu.json", "tabular-cpu.json")
STUDIES = ("twenty-runs.json",)
"""Whole studies, from the start of the command to its end."""
CPU = "CPU"


class Rate(NamedTuple):
    """A measured speed: steps a second of all ``runs`` side by side."""

    device: str
    game: str
    agents: tuple[str, ...]
    runs: int
    steps_per_s: float
    start_s: float = 0.0
    """Seconds of everything else: imports, compilation, checkpoints."""
    kind: str = ""
    """``kind_of`` the config; empty for a benchmark, which has the paper's sizes."""
    bytes_per_run: float = 0.0

    @property
    def seconds_per_step(self) -> float:
        """Seconds for one step of each run."""
        return self.runs / self.steps_per_s


class Forecast(NamedTuple):
    seconds: float
    measured: bool
    """Whether a run like this was measured on this device."""


def kind_of(config: TrainConfig) -> str:
    """A key that is equal for runs of about the same speed. Gates and explorers cost little."""
    values = {"game": config.game, "agent": config.agent, **asdict(config.settings)}
    values |= {"look_every": None, "episode_steps": config.episode_steps}
    return sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def work(config: TrainConfig) -> float:
    """A rough count of operations for a step: matrix products of the network, and playing."""
    own: Any = config.settings
    play = 1e5
    if not config.kind.updates:
        return play
    if hasattr(own, "context"):
        layers = 4 * own.context * (2 * own.encoder + own.context) + own.context * own.hidden
        each = layers + 20 * 4 * own.encoder * (own.embedding + own.encoder)
        drawn = own.batch_size * own.sequence_length
    elif hasattr(own, "value_filters"):
        words = own.state_history * own.state_words
        each, drawn = words * own.word_vector * 6 * own.value_filters, own.batch_size
    else:
        each, drawn = 10 * play, getattr(own, "batch_size", 1)
    return play + 2 * each + 8 * drawn * each / own.update_every


@dataclass(frozen=True)
class Rates:
    device: str
    """The device of the processes that will train."""
    rows: tuple[Rate, ...]
    overhead: float = 1.0
    """The factor by which whole studies are slower than the benchmarks."""
    _known: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    def knows(self, agent: str) -> bool:
        """Whether the agent was measured on any device."""
        return any(agent in row.agents for row in self.rows)

    def estimate(self, configs: Sequence[TrainConfig], steps: int, together: bool) -> Forecast:
        """Seconds for a task of these runs, each with ``steps`` left."""
        longest = max(configs, key=work)
        if together:
            rate = self._rate(longest, len(configs))
            return Forecast(rate.start + steps * rate.per_step, rate.measured)
        found = [self._rate(config, 1) for config in configs]
        seconds = max(rate.start for rate in found) + sum(steps * rate.per_step for rate in found)
        return Forecast(seconds, all(rate.measured for rate in found))

    def bytes_of(self, config: TrainConfig) -> float:
        """Memory of a run side by side with others; 0 if it was not measured."""
        kind = kind_of(config)
        own = [r.bytes_per_run for r in self.rows if r.kind == kind and r.device == self.device]
        return max(own, default=0.0)

    def _rate(self, config: TrainConfig, runs: int) -> _Found:
        key = config.game, config.agent, config.episode_steps, config.settings, runs
        if key not in self._known:
            self._known[key] = self._find(config, runs)
        return self._known[key]

    def _find(self, config: TrainConfig, runs: int) -> _Found:
        kind = kind_of(config)
        own = [row for row in self.rows if row.kind == kind and self._here(row)]
        if own:
            start = max(row.start_s for row in own)
            return _Found(_interpolated(own, runs), start, True)
        benchmarks = [row for row in self.rows if not row.kind and self._here(row)]
        like = [row for row in benchmarks if config.agent in row.agents]
        usual = TrainConfig(game=config.game, agent=config.agent)
        is_usual = kind_of(usual) == kind
        if like:
            scale = 1.0 if is_usual else work(config) / work(usual)
            measured = is_usual and any(row.game == config.game for row in like)
            per_step = self.overhead * scale * _of_game(like, config.game, runs)
            return _Found(per_step, 0.0, measured)
        if elsewhere := [row for row in self.rows if not row.kind and config.agent in row.agents]:
            # It may have been measured on a CPU only, which every machine has.
            return _Found(_of_game(elsewhere, config.game, runs), 0.0, False)
        if benchmarks:
            paper = TrainConfig(game=config.game, agent=benchmarks[0].agents[0])
            scale = work(config) / work(paper)
            per_step = self.overhead * scale * _of_game(benchmarks, config.game, runs)
            return _Found(per_step, 0.0, False)
        return _Found(work(config) * runs / 1e9, 0.0, False)

    def _here(self, row: Rate) -> bool:
        both = (row.device, self.device)
        # Ray calls an NVIDIA H200 by its last word.
        same = row.device == self.device or row.device.endswith(f" {self.device}")
        return same or all(device.startswith(CPU) for device in both)


class _Found(NamedTuple):
    per_step: float
    start: float
    measured: bool


def _of_game(rows: Sequence[Rate], game: str, runs: int) -> float:
    """Seconds for one step of this many runs.

    Most games are measured with a single number of runs. The game that was measured with the most
    numbers gives the shape of the curve, and the other games scale it.
    """
    games: dict[str, list[Rate]] = {}
    for row in rows:
        games.setdefault(row.game, []).append(row)
    curve = max(games.values(), key=len)
    own = games.get(game)
    if own is None or own is curve:
        return _interpolated(curve, runs)
    nearest = min(own, key=lambda row: abs(row.runs - runs))
    scale = nearest.seconds_per_step / _interpolated(curve, nearest.runs)
    return scale * _interpolated(curve, runs)


def _interpolated(rows: Sequence[Rate], runs: int) -> float:
    """Linear between measured numbers of runs, proportional beyond, constant before the first."""
    best: dict[int, float] = {}
    for row in rows:
        best[row.runs] = max(best.get(row.runs, 0.0), row.seconds_per_step)
    known = sorted(best)
    at = bisect_left(known, runs)
    if at == len(known):
        return best[known[-1]] * runs / known[-1]
    if at == 0 or known[at] == runs:
        return best[known[at]]
    low, high = known[at - 1], known[at]
    share = (runs - low) / (high - low)
    return best[low] + share * (best[high] - best[low])


# Files


def read_rates(device: str, out: Path | None = None) -> Rates:
    """The rates for a device: those of a study's folder, and the benchmarks."""
    benchmarks = [_benchmark(row) for name in BENCHMARKS for row in _load(name)["rows"]]
    own = [] if out is None else _own(out / NAME)
    return Rates(device, (*own, *benchmarks), _overhead(device, benchmarks))


def _load(name: str) -> dict[str, Any]:
    return json.loads(shipped(name).read_bytes())


def _benchmark(row: Mapping[str, Any]) -> Rate:
    agents = tuple(row["agent"].split(","))
    return Rate(row["device"], row["game"], agents, row["runs"], float(row["steps_per_s"]))


def _overhead(device: str, benchmarks: Iterable[Rate]) -> float:
    """The factor, from whole studies whose rate was also measured by a benchmark."""
    found = [1.0]
    for study in map(_load, STUDIES):
        game, runs = study["conditions"][0].split()[0], study["runs"]
        found += [
            row.steps_per_s / study["steps_per_s"]
            for row in benchmarks
            if (row.game, row.runs, row.device) == (game, runs, device)
            if device in study["device"]
        ]
    return max(found)


def _own(path: Path) -> list[Rate]:
    if not path.exists():
        return []
    try:
        # A kill may leave the last line half written: it has no end.
        lines = read_plain(path).split(b"\n")[:-1]
    except OSError as error:
        raise BrokenFileError(f"{path} cannot be read ({error.strerror}); delete it") from None
    found = []
    for number, line in enumerate(lines, 1):
        try:
            values = json.loads(line)
            rate = Rate(**{**values, "agents": tuple(values["agents"])})
            if not (rate.steps_per_s > 0 and rate.runs > 0 and rate.start_s >= 0):
                raise ValueError("a number is not more than 0")
            found.append(rate)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise BrokenFileError(
                f"{path}, line {number} is damaged ({error}); delete the file: "
                "the rates are measured again"
            ) from None
    return found


def keep_rates(out: Path, runs: Iterable[TrainConfig], measured: Mapping[str, Any]) -> None:
    """Adds what a task measured to a study's folder, for each kind of run in it."""
    kinds = {kind_of(run): run for run in runs}
    with (out / NAME).open("a+b") as file:
        file.seek(0)
        written = file.read()
        file.truncate(written.rfind(b"\n") + 1)
        for kind, run in kinds.items():
            rate = Rate(
                device=measured["device"],
                game=run.game,
                agents=(run.agent,),
                runs=measured["runs"],
                steps_per_s=measured["steps_per_s"],
                start_s=measured["start_s"],
                kind=kind,
                bytes_per_run=measured["peak_bytes"] / measured["runs"],
            )
            file.write(json.dumps(rate._asdict()).encode() + b"\n")
