"""Commands that win a TextWorld game from any state: the rest of a plan, and the way back to it.

For each command of a plan, regression gives the facts under which it and all that follow win the
game. Where those hold, the rest of the plan is the answer. Elsewhere a best-first search looks for
the shortest way to where they do.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from grue.games.logic import Action, Facts, Logic, without

MOST_STATES = 3000
"""The largest number of states in a search for the way back to the plan."""


class Rest(NamedTuple):
    """The rest of the plan from one command on."""

    commands: tuple[str, ...]
    needs: Facts
    done: frozenset[int]
    """Quests that the plan has done before."""


class Policy:
    def __init__(self, logic: Logic, plan: Sequence[str], slots: set[str]) -> None:
        self.logic = logic
        self.slots = slots
        self.actions = _named_actions(logic, slots)
        self.rests = self._rests(plan)

    def commands(self, facts: Facts, done: frozenset[int]) -> tuple[str, ...]:
        """The commands to win with; none if no way is found."""
        bare = self._bare(facts)
        order = itertools.count()  # Among equals, the first found.
        waiting: list[tuple[int, int, Facts, frozenset[int], tuple[str, ...]]] = [
            (0, next(order), bare, done, ())
        ]
        seen = {bare}
        while waiting and len(seen) < MOST_STATES:
            _, _, facts, done, way = heapq.heappop(waiting)
            for rest in self.rests:
                if rest.done <= done and rest.needs <= facts:
                    return (*way, *rest.commands)
            for command, after in self._steps(facts):
                if after not in seen:
                    seen.add(after)
                    finished = done | self._done(after)
                    far = len(way) + 1 + self._distance(after, finished)
                    heapq.heappush(waiting, (far, next(order), after, finished, (*way, command)))
        return ()

    def _bare(self, facts: Facts) -> Facts:
        """Facts without those about slots, which are alike."""
        return frozenset(f for f in facts if not self.slots.intersection(f[1:]))

    def _distance(self, facts: Facts, done: frozenset[int]) -> int:
        """A guess at how many commands are left: a missing fact counts as one."""
        left = (
            len(rest.needs - facts) + len(rest.commands) for rest in self.rests if rest.done <= done
        )
        return min(left, default=0)

    def _steps(self, facts: Facts) -> Iterator[tuple[str, Facts]]:
        """What can be done, and the facts after it; not what loses the game."""
        carried = sum(f[0] == "in" and f[2:] == ("I",) for f in facts)
        full = bool(self.slots) and carried >= len(self.slots)
        for action, command in self.actions.items():
            if action.needs <= facts and not (full and action.rule.startswith("take")):
                after = action.apply(facts)
                fails = (c for quest in self.logic.quests for c in quest.fails)
                if not any(conditions <= after for conditions in fails):
                    yield command, after

    def _done(self, facts: Facts) -> frozenset[int]:
        quests = enumerate(self.logic.quests)
        return frozenset(q for q, quest in quests if any(c <= facts for c in quest.wins))

    def _rests(self, plan: Sequence[str]) -> list[Rest]:
        """The ends of the plan, the shortest first; empty if the plan cannot be followed."""
        facts, done = self._bare(self.logic.initial), self._done(self.logic.initial)
        steps: list[tuple[str, Action, Facts, frozenset[int]]] = []
        by_command: dict[str, list[Action]] = {}
        for command in plan:
            if command not in by_command:
                known = self.logic.actions.get(command, ())
                by_command[command] = [without(a, self.slots) for a in known if a.changes_state]
            found = next((a for a in by_command[command] if a.needs <= facts), None)
            if found is None:
                if by_command[command] or command not in self.logic.actions:
                    return []
                continue  # The command changes nothing.
            facts = found.apply(facts)
            # What newly done quests ask for must hold after the command.
            new = self._done(facts) - done
            wins = [c for q in new for c in self.logic.quests[q].wins if c <= facts]
            steps.append((command, found, frozenset().union(*wins), done))
            done |= new
        rests: list[Rest] = []
        needs: Facts = frozenset()
        for command, action, wins, before in reversed(steps):
            needs = ((needs | wins) - action.adds) | action.needs
            later = rests[-1].commands if rests else ()
            rests.append(Rest((command, *later), needs, before))
        return rests


def _named_actions(logic: Logic, slots: set[str]) -> dict[Action, str]:
    """Every action that changes something, with the fullest command that names it."""
    found: dict[Action, str] = {}
    for command, actions in logic.actions.items():
        for action in (without(a, slots) for a in actions if a.changes_state):
            if len(command) > len(found.get(action, "")):
                found[action] = command
    return found
