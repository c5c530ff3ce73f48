"""Which runs are trained side by side, and from which step they go on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from small_runs import TINY as CONFIG

from grue.training.groups import Member, plan
from grue.training.programs import build, program_key


def member(
    seed: int = 0, saved: tuple[int, ...] = (), together: tuple[str, ...] = (), **values: Any
) -> Member:
    config = replace(CONFIG, seeds=(seed,), **values)
    heads = 1 if config.agent == "drqn" else 5
    notes = {"heads": heads, "explorers": [["none", {}]], "together": list(together)}
    return Member(f"{config.agent}{seed}", config, heads, None, saved, notes if saved else {})


def planned(
    *members: Member, together: bool = True, one_program: bool = False
) -> list[tuple[list[str], int, int]]:
    groups = plan(members, together, one_program)
    return [(group.names, group.step, group.heads) for group in groups]


def test_what_may_differ_in_one_program() -> None:
    alike = [
        {"agent": "drqn"},
        {"gate": "oracle"},
        {"priority": False},
        {"look_every": 0},
        {"heads": 2},
        {"seeds": (4,)},
    ]
    for values in alike:
        assert program_key(replace(CONFIG, **values)) == program_key(CONFIG)
    for values in [{"game": "saladworld-2"}, {"steps": 800}, {"discount": 0.5}, {"context": 4}]:
        assert program_key(replace(CONFIG, **values)) != program_key(CONFIG)
    tabular = replace(CONFIG, agent="tabular", gate="none")
    assert program_key(tabular) != program_key(replace(tabular, agent="li-tabular"))
    assert program_key(tabular) != program_key(CONFIG)
    assert build(CONFIG, 5, False) is build(replace(CONFIG, steps=200, gate="none"), 5, False)


def test_new_runs() -> None:
    some = [member(0), member(1), member(0, agent="drqn"), member(2, context=4)]
    assert planned(*some) == [(["sc0", "sc1", "drqn0"], 0, 5), (["sc2"], 0, 5)]
    assert planned(*some, together=False) == [
        (["sc0"], 0, 5),
        (["sc1"], 0, 5),
        (["drqn0"], 0, 1),
        (["sc2"], 0, 5),
    ]
    # One by one and yet with one program, which has heads for all of them.
    assert planned(*some, together=False, one_program=True) == [
        (["sc0"], 0, 5),
        (["sc1"], 0, 5),
        (["drqn0"], 0, 5),
        (["sc2"], 0, 5),
    ]
    begun = member(0, (100,), agent="drqn")
    assert planned(member(0), begun, together=False, one_program=True) == [
        (["sc0"], 0, 5),
        (["drqn0"], 100, 1),
    ]


def test_a_team_goes_on_from_the_latest_step_that_all_have() -> None:
    team = ("sc0", "sc1")
    # Killed while saving: the first was saved once more than the second.
    ahead = member(0, (300, 400), team)
    assert planned(ahead, member(1, (200, 300), team)) == [(["sc0", "sc1"], 300, 5)]
    # The second had not been saved at all.
    assert planned(member(0, (100,), team), member(1)) == [(["sc0", "sc1"], 0, 5)]
    # Killed at the end: the first is finished, and still goes on with the second.
    assert planned(member(0, (700, 800), team), member(1, (600, 700), team)) == [
        (["sc0", "sc1"], 700, 5)
    ]
    # One by one, each from its own.
    assert planned(ahead, member(1, (200, 300), team), together=False) == [
        (["sc0"], 400, 5),
        (["sc1"], 300, 5),
    ]


def test_runs_that_were_no_team_lose_nothing() -> None:
    done = member(0, (800,), ("sc0",))
    assert planned(done, member(1)) == [(["sc0"], 800, 5), (["sc1"], 0, 5)]
    assert planned(done, member(1, (200, 800), ("sc1",))) == [(["sc0", "sc1"], 800, 5)]
    # A team of which only some go on.
    team = ("sc0", "sc1", "sc2")
    assert planned(member(0, (300, 400), team), member(1, (200, 300), team)) == [
        (["sc0"], 400, 5),
        (["sc1"], 300, 5),
    ]
    # Weights with other numbers of heads are other programs.
    apart = [member(0, (400,), ("sc0",)), member(0, (400,), ("drqn0",), agent="drqn")]
    assert planned(*apart) == [(["sc0"], 400, 5), (["drqn0"], 400, 1)]
