"""Proposes commands for a story from its grammar."""

from __future__ import annotations

from collections.abc import Iterator

from grue.errors import UsageError
from grue.games.zmachine.grammar import USUAL_VERBS, Pattern, read_grammar
from grue.games.zmachine.story_file import StoryFile


def propose(story: StoryFile, limit: int) -> tuple[str, ...]:
    """Directions and single words first, then commands with objects.

    A command with the i-th pattern and the j-th object has rank i · j. So usual verbs and near
    objects come first, and usual verbs get more objects.
    """
    if limit < 1:
        raise UsageError(f"the limit of commands is {limit}; it must be at least 1")
    grammar = read_grammar(story)
    patterns = sorted(grammar.patterns, key=_usualness)
    alone = [_fill(p, ()) for p in patterns if None not in p and _is_usual(p)]
    commands = dict.fromkeys((*grammar.directions, *alone))
    bound, last = limit, len(patterns) * len(grammar.names) ** 2
    while True:
        ranked = sorted(
            (weight, rank, command)
            for rank, pattern in enumerate(patterns, 1)
            for weight, command in _with_objects(pattern, rank, grammar.names, bound)
        )
        commands.update(dict.fromkeys(command for *_, command in ranked))
        if len(commands) >= limit or bound >= last:
            return tuple(commands)[:limit]
        bound *= 4


def _with_objects(
    pattern: Pattern, rank: int, names: tuple[str, ...], bound: int
) -> Iterator[tuple[int, str]]:
    """The commands of a pattern with their ranks, up to a bound."""
    objects = pattern.count(None)
    if objects == 0 and rank <= bound:
        yield rank, _fill(pattern, ())
    for i, first in enumerate(names[: bound // rank], 1):
        if objects == 1:
            yield rank * i, _fill(pattern, (first,))
        elif objects == 2:
            for j, second in enumerate(names[: bound // (rank * i)], 1):
                if i != j:
                    yield rank * i * j, _fill(pattern, (first, second))


def _fill(pattern: Pattern, names: tuple[str, ...]) -> str:
    remaining = iter(names)
    return " ".join(next(remaining) if part is None else part for part in pattern)


def _is_usual(pattern: Pattern) -> bool:
    return pattern[0] in USUAL_VERBS


def _usualness(pattern: Pattern) -> tuple[bool, int, int, tuple[str, ...]]:
    """Usual verbs before others, then short patterns before long ones."""
    usual = _is_usual(pattern)
    place = USUAL_VERBS.index(str(pattern[0])) if usual else 0
    return not usual, len(pattern), place, tuple(part or "" for part in pattern)
