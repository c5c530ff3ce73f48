"""Moments, thoughts and decisions as JSON for the page."""

from __future__ import annotations

from typing import Any

import numpy as np

from grue.watch.session import Decided, Mind, Moment, Session, SessionSeed
from grue.watch.stage import StageView


def tell_moment(moment: Moment, stage: StageView) -> dict[str, Any]:
    step = moment.step
    told: dict[str, Any] = {
        "id": moment.number,
        "parent": moment.parent,
        "command": moment.command,
        "by": moment.by,
        "depth": moment.depth,
        "text": step.text,
        "reward": int(step.reward),
        "score": int(step.score),
        "over": moment.over,
        "changed": bool(step.admissible),
        "subtasks": _where(step.subtasks),
        "admissible": _where(step.admissible_set) if stage.env.knows.admissible else None,
    }
    if stage.world is not None and moment.facts is not None:
        told["world"] = stage.world.told(moment.facts)
    return told


def tell_thoughts(decided: Decided) -> dict[str, Any]:
    """Q, ξ̂, the candidates and the choice, by the numbers of the commands."""
    estimates = decided.admissibility
    return {
        "action": decided.action,
        "forced": decided.forced,
        "head": decided.head,
        "candidates": _where(decided.candidates),
        "values": _rounded(decided.values),
        "estimates": None if estimates is None else _rounded(estimates),
    }


def tell_brief(decided: Decided) -> dict[str, Any]:
    """What the plots over an episode need."""
    held = np.where(decided.candidates, decided.values, -np.inf)
    return {"head": decided.head, "value": _rounded(held.max(keepdims=True))[0]}


def tell_session(session: Session, name: str) -> dict[str, Any]:
    chance: SessionSeed = session.chance
    return {"session": name, "stage": session.stage.told(), **chance._asdict()}


def stored_episode(session: Session, mind: Mind | None, last: int, about: Any) -> dict[str, Any]:
    """An episode with its thoughts, for a page that needs no server."""
    line = session.line(last)
    thoughts = {}
    if mind is not None:
        open_ = [number for number in line if not session.moments[number].over]
        thoughts = {str(n): tell_thoughts(session.decided(n, mind)) for n in open_}
    return {
        "about": about,
        "session": tell_session(session, "stored"),
        "moments": [tell_moment(session.moments[n], session.stage) for n in line],
        "thoughts": thoughts,
    }


def _where(truths: Any) -> list[int]:
    return np.flatnonzero(np.asarray(truths)).tolist()


def _rounded(values: Any) -> list[float | None]:
    """Four digits after the point; None where a value is not finite, as JSON wants it."""
    array = np.asarray(values, np.float64)
    return [
        None if not finite else value
        for value, finite in zip(array.round(4).tolist(), np.isfinite(array).tolist(), strict=True)
    ]
