"""Descriptions with Inform's markup, as pieces under guards, against values worked out by hand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import grue
from grue.engine.compiler.model import Model, Variable
from grue.engine.compiler.text import (
    ALWAYS,
    MOST_SITUATIONS,
    Guard,
    Listing,
    Piece,
    Texts,
    Words,
    inform_quotes,
)
from grue.errors import CannotCompileError
from grue.games.logic import ground


@pytest.fixture(scope="module")
def texts() -> Texts:
    """Level 5: it has a door, a fridge, a locked chest and supporters."""
    game = grue.load("saladworld-5")
    return Texts(Model(game, ground(game)))


def entity(texts: Texts, name: str) -> str:
    return next(e for e, info in texts.model.game.infos.items() if info["name"] == name)


def holds(guard: Guard, values: Mapping[Variable, int]) -> bool:
    return tuple(values[v] for v in guard.variables) in guard.allowed


def status(texts: Texts, name: str, *known: str) -> dict[Variable, int]:
    thing = entity(texts, name)
    found = [i for i, c in enumerate(texts.model.statuses[thing]) if set(known) <= c]
    assert len(found) == 1, known
    return {("status", thing): found[0]}


def printed(pieces: Iterable[Piece], values: Mapping[Variable, int]) -> str:
    shown = (piece for piece in pieces if holds(piece.guard, values))
    return "".join(p.text if isinstance(p, Words) else f"<{p.holder}>" for p in shown)


# Markup.


def test_plain_text_is_one_piece(texts: Texts) -> None:
    assert texts.parse("A counter.", "s_0") == (Words("A counter."),)
    assert texts.parse("", "s_0") == ()


def test_line_break_and_list(texts: Texts) -> None:
    counter = entity(texts, "counter")
    pieces = texts.parse(f"Here:[line break][a list of things on the {counter}].", counter)
    assert pieces == (Words("Here:"), Words("\n"), Listing(counter), Words("."))


def test_noun_is_the_name_of_what_is_described(texts: Texts) -> None:
    counter = entity(texts, "counter")
    assert texts.parse("The [noun].", counter) == (Words("The "), Words("counter"), Words("."))


def test_choice(texts: Texts) -> None:
    chest = entity(texts, "wooden chest")
    pieces = texts.parse(
        "A chest, [if open]open[else if locked]locked[otherwise]shut[end if].", chest
    )
    assert printed(pieces, status(texts, "wooden chest", "open")) == "A chest, open."
    assert printed(pieces, status(texts, "wooden chest", "locked")) == "A chest, locked."
    assert printed(pieces, status(texts, "wooden chest", "closed")) == "A chest, shut."


def test_order_of_conditions_decides(texts: Texts) -> None:
    chest = entity(texts, "wooden chest")
    # What is locked is closed as well, so the second branch is never reached.
    pieces = texts.parse("[if closed]shut[else if locked]locked[else]open[end if]", chest)
    assert printed(pieces, status(texts, "wooden chest", "locked")) == "shut"
    assert printed(pieces, status(texts, "wooden chest", "closed")) == "shut"
    assert printed(pieces, status(texts, "wooden chest", "open")) == "open"
    never = next(p for p in pieces if isinstance(p, Words) and p.text == "locked")
    assert never.guard.allowed == frozenset()


def test_closed_is_not_open(texts: Texts) -> None:
    chest = entity(texts, "wooden chest")
    (piece,) = texts.parse("[if closed]shut[end if]", chest)
    combinations = texts.model.statuses[chest]
    shut = {value for (value,) in piece.guard.allowed}
    assert shut == {i for i, known in enumerate(combinations) if "open" not in known}
    assert len(shut) == len(combinations) - 1 == 2


def test_nested_choices(texts: Texts) -> None:
    fridge, chest = entity(texts, "fridge"), entity(texts, "wooden chest")
    pieces = texts.parse(
        f"[if open]a[if there is something in the {fridge}]b[otherwise]c[end if]d"
        f"[otherwise]e[if {chest} is locked]f[end if]g[end if]h",
        fridge,
    )
    expected = {
        ("open", 0, "locked"): "acdh",
        ("open", 1, "locked"): "abdh",
        ("open", 2, "open"): "abdh",
        ("closed", 0, "locked"): "efgh",
        ("closed", 2, "closed"): "egh",
        ("closed", 1, "open"): "egh",
    }
    for (door, count, lid), text in expected.items():
        values = status(texts, "fridge", door) | status(texts, "wooden chest", lid)
        assert printed(pieces, values | {("count", fridge): count}) == text, (door, count, lid)


def test_counts_of_things(texts: Texts) -> None:
    table = entity(texts, "table")
    some = f"[if there is something on the {table}]"
    pieces = texts.parse(f"{some}[a list of things on the {table}][otherwise]bare[end if]", table)
    texts_by_count = [printed(pieces, {("count", table): n}) for n in range(3)]
    assert texts_by_count == ["bare", f"<{table}>", f"<{table}>"]
    nothing = texts.parse(f"[if there is nothing on the {table}]bare[end if]", table)
    contains = texts.parse(f"[if the {table} contains nothing]bare[end if]", table)
    assert nothing == contains
    assert [printed(nothing, {("count", table): n}) for n in range(3)] == ["bare", "", ""]


def test_and_joins_conditions(texts: Texts) -> None:
    fridge = entity(texts, "fridge")
    pieces = texts.parse(f"[if open and there is nothing in the {fridge}]empty[end if]", fridge)
    for door, count in itertools.product(("open", "closed"), range(3)):
        values = status(texts, "fridge", door) | {("count", fridge): count}
        expected = "empty" if (door, count) == ("open", 0) else ""
        assert printed(pieces, values) == expected


def test_the_last_end_if_may_be_left_out(texts: Texts) -> None:
    """As in the theme basic: the text ends there."""
    fridge = entity(texts, "fridge")
    pieces = texts.parse("a[if open]b[otherwise]c", fridge)
    for door, expected in (("open", "ab"), ("closed", "ac")):
        assert printed(pieces, status(texts, "fridge", door)) == expected


def test_condition_on_what_never_changes(texts: Texts) -> None:
    # A counter is neither open nor closed, ever: no variable is asked.
    counter = entity(texts, "counter")
    pieces = texts.parse("[if open]yes[otherwise]no[end if]", counter)
    assert all(piece.guard.variables == () for piece in pieces)
    assert printed(pieces, {}) == "no"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[if the moon is full]x[end if]", r"the condition \[if the moon is full\]"),
        ("[if open and dusty]x[end if]", r"the condition \[if dusty\]"),
        ("[if open]a[else if unlocked]b[end if]", r"the condition \[if unlocked\]"),
        ("[the time of day]", r"the text substitution \[the time of day\]"),
        ("[a list of things on the moon]", r"\[a list of things on the moon\]"),
        ("[If open]x[end if]", r"the text substitution \[If open\]"),
        ("x[end if]y", r"unbalanced markup in 'x\[end if\]y'"),
        ("x[otherwise]y", "unbalanced markup"),
    ],
)
def test_what_is_not_known_is_named(texts: Texts, text: str, reason: str) -> None:
    assert texts.model.is_a("c_0", "c")
    with pytest.raises(CannotCompileError, match=reason):
        texts.parse(text, "c_0")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("You can't.", "You can't."),
        ("the 'old' chest", 'the "old" chest'),
        ("'Stop'", '"Stop"'),
        ("the cooks' room", 'the cooks" room'),
        ("rock 'n' roll", 'rock "n" roll'),
        ("o'clock, don't", "o'clock, don't"),
        ("'", '"'),
    ],
)
def test_quotes(texts: Texts, text: str, expected: str) -> None:
    assert inform_quotes(text) == expected
    assert texts.parse(text, "s_0") == (Words(expected),)


# Names.


def test_phrases_carry_article_and_state() -> None:
    game = grue.load("saladworld-7")
    texts = Texts(Model(game, ground(game)))
    apple, knife = entity(texts, "apple"), entity(texts, "knife")
    assert texts.phrase(apple, frozenset({"raw", "uncut"})) == "an apple"
    assert (
        texts.phrase(apple, frozenset({"sliced", "roasted", "cooked"})) == "a sliced roasted apple"
    )
    assert texts.phrase(apple, frozenset({"diced", "fried", "burned"})) == "a diced burned apple"
    assert texts.phrase(apple, frozenset({"chopped", "needs_cooking"})) == "a chopped raw apple"
    # A knife is no food.
    assert texts.phrase(knife, frozenset({"sliced"})) == "a knife"


# The algebra of guards, against brute force.


def small_guards(texts: Texts) -> st.SearchStrategy[tuple[list[Variable], set[tuple[int, ...]]]]:
    """Variables and the values that a guard on them allows."""
    things = [entity(texts, name) for name in ("fridge", "wooden chest", "blue door")]
    variables: list[Variable] = [*(("status", t) for t in things), ("count", "floor")]
    values = {variable: range(texts.model.domain(variable)) for variable in variables}

    @st.composite
    def guard(draw: st.DrawFn) -> tuple[list[Variable], set[tuple[int, ...]]]:
        chosen = draw(st.lists(st.sampled_from(variables), max_size=2, unique=True))
        points = list(itertools.product(*(values[v] for v in chosen)))
        return chosen, draw(st.sets(st.sampled_from(points)))

    return guard()


def every_state(texts: Texts, guards: Iterable[Guard]) -> Iterable[dict[Variable, int]]:
    variables = sorted({v for guard in guards for v in guard.variables})
    for values in itertools.product(*(range(texts.model.domain(v)) for v in variables)):
        yield dict(zip(variables, values, strict=True))


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_both_and_none_of(texts: Texts, data: st.DataObject) -> None:
    drawn = data.draw(st.lists(small_guards(texts), min_size=2, max_size=3))
    guards = [Guard(tuple(variables), frozenset(allowed)) for variables, allowed in drawn]
    asked = {v for guard in guards for v in guard.variables}
    if math.prod(texts.model.domain(v) for v in asked) > MOST_SITUATIONS:
        with pytest.raises(CannotCompileError, match="depends on too many things at once"):
            texts.none_of(guards)
        return
    both, none = texts.both(guards[0], guards[1]), texts.none_of(guards)
    assert set(none.variables) == asked
    assert len(set(both.variables)) == len(both.variables)
    for values in every_state(texts, guards):
        truths = [holds(guard, values) for guard in guards]
        assert holds(both, values) == (truths[0] and truths[1])
        assert holds(none, values) == (not any(truths))


def test_none_of_nothing_is_always(texts: Texts) -> None:
    assert texts.none_of([]) == ALWAYS
    assert texts.both(ALWAYS, ALWAYS) == ALWAYS
    never = texts.none_of([ALWAYS])
    assert never.allowed == frozenset()


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_branches_of_a_choice_exclude_each_other(texts: Texts, data: st.DataObject) -> None:
    """In every state exactly one branch of an if with an otherwise is printed: the first true."""
    chest, table = entity(texts, "wooden chest"), entity(texts, "table")
    known = {
        "open": lambda v: v[0] == "open",
        "closed": lambda v: v[0] != "open",
        "locked": lambda v: v[0] == "locked",
        f"there is something on the {table}": lambda v: v[1] > 0,
        f"the {table} contains nothing": lambda v: v[1] == 0,
    }
    conditions = data.draw(st.lists(st.sampled_from(list(known)), min_size=1, max_size=4))
    branches = "".join(f"[else if {c}]{i}" for i, c in enumerate(conditions)).removeprefix("[else ")
    pieces = texts.parse(f"[{branches}[otherwise]none[end if]", chest)
    for lid, count in itertools.product(("open", "closed", "locked"), range(3)):
        values = status(texts, "wooden chest", lid) | {("count", table): count}
        true = [str(i) for i, c in enumerate(conditions) if known[c]((lid, count))]
        assert printed(pieces, values) == (true[0] if true else "none")
