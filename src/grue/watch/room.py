"""All that the server's answers are made of: subjects, sessions and batches of episodes.

One thread does this work, in the order asked: an emulator serves one caller at a time.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grue.agents.settings import LARGEST
from grue.errors import GrueError, UsageError
from grue.watch.episodes import MOST_EPISODES, EpisodeTally, play_many
from grue.watch.page import stored_page
from grue.watch.session import MOST_MOMENTS, Mind, Session, SessionSeed
from grue.watch.subjects import RunSubject, Subject
from grue.watch.telling import (
    stored_episode,
    tell_brief,
    tell_moment,
    tell_session,
    tell_thoughts,
)

MOST_SESSIONS = 32
MOST_AT_ONCE = 50
"""Moments or thoughts in one answer."""
MOST_BRIEF = 500


class GoneError(GrueError):
    """A session that is not there; the page can restore it."""


@dataclass
class EpisodeBatch:
    """Episodes that are being played."""

    wanted: int
    work: Iterator[EpisodeTally]
    tally: EpisodeTally | None = None
    error: str = ""

    @property
    def finished(self) -> bool:
        return bool(self.error) or (self.tally is not None and self.tally.episodes >= self.wanted)


class WatchRoom:
    def __init__(self, subjects: Sequence[Subject]) -> None:
        self.subjects = subjects
        self.sessions: OrderedDict[str, tuple[Session, Subject]] = OrderedDict()
        self.batches: OrderedDict[str, EpisodeBatch] = OrderedDict()

    def warm_up(self) -> None:
        """Compiles the programs of the first subject, so that its first step is fast."""
        for subject in self.subjects[:1]:
            try:
                session = Session(subject.stage, SessionSeed())
                if isinstance(subject, RunSubject):
                    session.play_agent(0, subject.mind())
            except GrueError:
                return  # The page asks again and gets the reason.

    # Each takes the JSON of a request and returns that of its answer.

    def about(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        return {"subjects": [subject.told() for subject in self.subjects]}

    def begin(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Begins a session, or restores one from its moves: [parent, command, by] of each."""
        subject = self._subject(asked)
        chance = SessionSeed(
            _number(asked, "seed", LARGEST, 0),
            _number(asked, "episode", LARGEST - 1, 0),
            _share(asked, "epsilon"),
        )
        session = Session(subject.stage, chance)
        moves = asked.get("moves", [])
        if not isinstance(moves, list) or len(moves) > MOST_MOMENTS:
            raise UsageError(f"moves is a list of at most {MOST_MOMENTS}")
        for move in moves:
            parent, command, by = _move(move)
            session.play(parent, command, by)
        name = secrets.token_urlsafe(12)
        self.sessions[name] = session, subject
        while len(self.sessions) > MOST_SESSIONS:
            self.sessions.popitem(last=False)
        # A restored session's moments are on the page already.
        shown = session.moments[:1] if moves else session.moments
        told = [tell_moment(moment, subject.stage) for moment in shown]
        return tell_session(session, name) | {"moments": told}

    def play(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Plays a command, or lets an agent play some; with the thoughts at the new moments."""
        session, subject = self._session(asked)
        at = _number(asked, "at", MOST_MOMENTS)
        mind = self._mind(asked, session)
        new = []
        if "command" in asked:
            new.append(session.play(at, _text(asked["command"])))
        else:
            if mind is None:
                raise UsageError(f"{subject.name} has no agent: give it a command")
            for _ in range(_number(asked, "count", MOST_AT_ONCE, 1)):
                if session.moment(at).over:
                    break
                new.append(session.play_agent(at, mind))
                at = new[-1].number
        told = [tell_moment(moment, subject.stage) for moment in new]
        if mind is not None:
            for moment, one in zip(new, told, strict=True):
                if moment.over:
                    continue
                one["thoughts"] = tell_thoughts(session.decided(moment.number, mind))
        return {"moments": told}

    def thoughts(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """What an agent thinks at some moments; with ``brief`` only its value and head."""
        session, _ = self._session(asked)
        mind = self._mind(asked, session)
        if mind is None:
            raise UsageError("there is no agent to ask")
        brief = asked.get("brief") is True
        moments = asked.get("moments")
        most = MOST_BRIEF if brief else MOST_AT_ONCE
        if not isinstance(moments, list) or not 0 < len(moments) <= most:
            raise UsageError(f"moments is a list of 1 to {most} numbers")
        tell = tell_brief if brief else tell_thoughts
        checked = [session.moment(_whole(number, "a moment")).number for number in moments]
        found = {str(number): tell(session.decided(number, mind)) for number in checked}
        return {"thoughts": found, "steps": mind.steps}

    def curves(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        return self._run(asked).curves()

    def episodes(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Starts to play a batch of episodes."""
        run = self._run(asked)
        count = _number(asked, "count", MOST_EPISODES)
        if count < 1:
            raise UsageError("count is at least 1")
        mind = run.mind(_step(asked))
        work = play_many(mind, count, _share(asked, "epsilon"), _number(asked, "seed", LARGEST, 0))
        name = secrets.token_urlsafe(12)
        self.batches[name] = EpisodeBatch(count, work)
        while len(self.batches) > MOST_SESSIONS:
            self.batches.popitem(last=False)
        return {"batch": name, "wanted": count}

    def more_episodes(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Plays the next part of a batch. Other requests are answered in between."""
        batch = self.batches.get(str(asked.get("batch")))
        if batch is None:
            raise GoneError("these episodes are gone: the server was started again; play them anew")
        if not batch.finished:
            batch.tally = next(batch.work)
        assert batch.tally is not None
        return {"finished": batch.finished, "wanted": batch.wanted, **batch.tally.told()}

    def export(self, asked: Mapping[str, Any]) -> str:
        """An episode as one HTML file."""
        session, subject = self._session(asked)
        mind = self._mind(asked, session)
        last = session.moment(_number(asked, "last", MOST_MOMENTS)).number
        return stored_page(stored_episode(session, mind, last, about_stored(subject, mind)))

    # What requests name

    def _subject(self, asked: Mapping[str, Any], name: str = "subject") -> Subject:
        number = _number(asked, name, LARGEST)
        if number >= len(self.subjects):
            raise UsageError(f"{name} is a number from 0 to {len(self.subjects) - 1}, not {number}")
        return self.subjects[number]

    def _run(self, asked: Mapping[str, Any]) -> RunSubject:
        subject = self._subject(asked)
        if not isinstance(subject, RunSubject):
            raise UsageError(f"{subject.name} is a game without an agent; give a run")
        return subject

    def _session(self, asked: Mapping[str, Any]) -> tuple[Session, Subject]:
        name = str(asked.get("session"))
        if name not in self.sessions:
            raise GoneError("this session is gone: the server was started again")
        self.sessions.move_to_end(name)
        return self.sessions[name]

    def _mind(self, asked: Mapping[str, Any], session: Session) -> Mind | None:
        """The agent that a request names by ``mind``, the number of a run, and ``step``."""
        if asked.get("mind") is None:
            return None
        subject = self._subject(asked, "mind")
        if not isinstance(subject, RunSubject):
            return None
        here, there = session.stage.env, subject.stage.env
        if here is not there and not _alike(here, there):
            raise UsageError(f"{subject.name} plays another game, or with other limits")
        return subject.mind(_step(asked))


def about_stored(subject: Subject, mind: Mind | None) -> dict[str, Any]:
    """Only what a reader of the file should know: no folders of this machine."""
    told = subject.told()
    names = ("kind", "name", "game", "agent", "gate", "explore", "heads", "judges")
    about = {name: told[name] for name in names if name in told}
    about["game"] = str(about.get("game", "")).rpartition("/")[2]
    return about | {"trained": None if mind is None else mind.steps}


def _alike(here: Any, there: Any) -> bool:
    """Whether an agent of one environment can judge the states of another."""
    return (type(here), here.digest, here.commands, here.episode_steps) == (
        type(there),
        there.digest,
        there.commands,
        there.episode_steps,
    )


def _whole(value: Any, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{what} is a whole number, not {str(value)[:40]!r}")
    return value


def _number(asked: Mapping[str, Any], name: str, most: int, default: int | None = None) -> int:
    value = _whole(asked.get(name, default), name)
    if not 0 <= value <= most:
        raise UsageError(f"{name} lies from 0 to {most}, not {value}")
    return value


def _share(asked: Mapping[str, Any], name: str) -> float:
    value = asked.get(name, 0.0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise UsageError(f"{name} lies from 0 to 1, not {str(value)[:40]!r}")
    return float(value)


def _step(asked: Mapping[str, Any]) -> int | None:
    value = asked.get("step")
    return None if value is None else _whole(value, "step")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise UsageError(f"a command is a text, not {str(value)[:40]!r}")
    return value


def _move(move: Any) -> tuple[int, str, str]:
    if not isinstance(move, list) or len(move) != 3 or move[2] not in ("you", "agent", "forced"):
        raise UsageError("a move is a list of parent, command and by")
    return _whole(move[0], "parent"), _text(move[1]), move[2]
