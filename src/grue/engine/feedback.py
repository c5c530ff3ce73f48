"""Parses the output of a TextWorld story: text, score, end of the game, events.

Each turn ends with a prompt and a status line (room, score, number of turns); the last turn ends
with a line that has the number of turns. Observations leave these out, so that the agent is not
told the time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from grue.errors import BrokenFileError

# The room's name ends in "=-", and scores may be negative: "-= Attic =--2/5".
STATUS = re.compile(r"\n>\s*(?:\S.*=-)?(-?\d+)/(\d+)\s*\Z")
FINAL_SCORE = re.compile(r"\nYou scored (?:a total of )?(-?\d+) (?:out of|point).*\Z", re.DOTALL)
TRACE = re.compile(r"\[([^\]]+)\]\n?")
LOGO = re.compile(r"\A(?:[ _|\\/$<>]*\n)+")
"""TextWorld's logo before the opening."""
WON = "*** The End ***"
LOST = "*** You lost! ***"


@dataclass(frozen=True)
class Feedback:
    text: str
    score: int
    won: bool
    lost: bool
    events: tuple[str, ...]
    """Successful actions, if the story traces them."""


def read_feedback(raw: str) -> Feedback:
    """Parses one turn's output of a TextWorld story."""
    won, lost = WON in raw, LOST in raw
    pattern = FINAL_SCORE if won or lost else STATUS
    found = pattern.search(raw)
    if found is None:
        raise BrokenFileError(f"the story's output has no score; is it TextWorld's? {raw[-80:]!r}")
    body = LOGO.sub("", raw[: found.start()])
    return Feedback(
        tidy(TRACE.sub("", body)), int(found[1]), won, lost, _events(TRACE.findall(body))
    )


def _events(tags: list[str]) -> tuple[str, ...]:
    done = " - succeeded"
    # A number in parentheses marks a part of another action.
    return tuple(t.removesuffix(done) for t in tags if t.endswith(done) and not t.startswith("("))


def tidy(text: str) -> str:
    """Removes indents and repeated blank lines."""
    lines = "\n".join(line.strip() for line in text.strip().splitlines())
    return re.sub(r"\n{3,}", "\n\n", lines)
