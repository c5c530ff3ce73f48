"""Writes an episode with its thoughts as one HTML file that needs no server."""

from __future__ import annotations

from pathlib import Path

from grue.errors import GrueError, UsageError
from grue.files import check_is_file, write_atomically
from grue.watch.page import stored_page
from grue.watch.room import about_stored
from grue.watch.session import Session, SessionSeed
from grue.watch.subjects import RunSubject, Subject
from grue.watch.telling import stored_episode


def export_episode(subject: Subject, path: Path) -> Path:
    """Lets the agent of a run play an episode greedily, and writes it."""
    check_is_file(path)
    if not isinstance(subject, RunSubject):
        raise UsageError(f"{subject.name} is a game without an agent; give a run to export")
    mind, session = subject.mind(), Session(subject.stage, SessionSeed())
    last = session.moments[0]
    while not last.over:
        last = session.play_agent(last.number, mind)
    page = stored_page(stored_episode(session, mind, last.number, about_stored(subject, mind)))
    try:
        write_atomically(path, lambda file: file.write(page.encode()))
    except OSError as error:
        raise GrueError(f"cannot write {path}: {error.strerror}") from None
    return path
