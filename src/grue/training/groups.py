"""Groups runs that can be trained as one batch, and finds the step each group starts at."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grue.training.checkpoint import KEPT
from grue.training.config import TrainConfig
from grue.training.programs import Explorers, explorers_of, noted_explorers, program_key


@dataclass
class Member:
    """One run: a config with one seed."""

    name: str
    config: TrainConfig
    heads: int
    folder: Path | None = None
    saved: Sequence[int] = ()
    """Steps of its checkpoints."""
    notes: dict[str, Any] = field(default_factory=dict)
    """From the last checkpoint: the program's heads, explorers and runs (``together``)."""
    is_new: bool = True
    """Its folder does not exist yet."""

    @property
    def latest(self) -> int:
        return self.saved[-1] if self.saved else 0

    @property
    def starts(self) -> set[int]:
        """Steps it can start from: 0 too as long as no checkpoint has been deleted."""
        return set(self.saved) | ({0} if len(self.saved) < KEPT else set())


@dataclass
class Group:
    """Runs trained by one program, from the same step on."""

    members: list[Member]
    step: int
    heads: int
    explorers: Explorers

    @property
    def names(self) -> list[str]:
        return [member.name for member in self.members]


def plan(members: Sequence[Member], together: bool, one_program: bool = False) -> list[Group]:
    """Groups runs: as large as possible with ``together``, else one run each.

    With ``one_program`` single runs use a program that fits all of them.
    """
    shared = together or one_program
    alike = _by(members, lambda m: program_key(m.config)) if shared else [[m] for m in members]
    groups: list[Group] = []
    for some in alike:
        rest = list(some)
        if together:
            groups += (teams := _teams(some))
            rest = [m for m in some if not any(m in team.members for team in teams)]
        most = max(member.heads for member in some)

        def place(member: Member, most: int = most) -> tuple[int, int, Explorers | None]:
            if not member.saved:
                return 0, most, None
            return member.latest, member.notes["heads"], noted_explorers(member.notes)

        for same in _by(rest, place) if together else [[member] for member in rest]:
            step, heads, explorers = place(same[0])
            own = explorers_of(member.config for member in same)
            groups.append(Group(same, step, heads, own if explorers is None else explorers))
    return groups


def _teams(members: Sequence[Member]) -> list[Group]:
    """Runs that were trained together before and share a checkpoint's step.

    If the process was killed, some may have one checkpoint more than the others.
    """
    teams = []
    for names in dict.fromkeys(tuple(m.notes["together"]) for m in members if m.saved):
        team = [member for member in members if member.name in names]
        strangers = [m for m in team if m.saved and tuple(m.notes["together"]) != names]
        if len(team) < max(len(names), 2) or strangers:
            continue
        common = set.intersection(*(member.starts for member in team))
        if common:
            heads = next(member.notes["heads"] for member in team if member.saved)
            explorers = explorers_of(member.config for member in team)
            teams.append(Group(team, max(common), heads, explorers))
    return teams


def _by(members: Sequence[Member], key: Callable[[Member], Hashable]) -> list[list[Member]]:
    found: dict[Hashable, list[Member]] = {}
    for member in members:
        found.setdefault(key(member), []).append(member)
    return list(found.values())
