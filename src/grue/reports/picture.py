"""What all pictures share: colours, a typeface, and files that are written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grue.errors import GrueError, UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
FONT = "DejaVu Sans"  # Matplotlib brings it along, so pictures are the same everywhere.
INK, GREY, PAPER = "#22272e", "#6b7480", "#ffffff"


def save_picture(path: str | Path, draw: Callable[[], Figure]) -> Path:
    """Draws to a ``.png``, ``.svg`` or ``.pdf`` file and returns its path.

    The same figure gives the same file, whenever it is drawn.
    """
    import matplotlib

    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"cannot draw to {path}: the name must end in {', '.join(FORMATS)}")
    format_ = path.suffix.lower()[1:]
    undated: Any = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(format_, {})
    settings: Any = {"font.family": FONT, "svg.hashsalt": "grue", "text.parse_math": False}
    try:
        if not path.parent.exists():
            path.parent.mkdir(parents=True)
        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with unfinished.open("wb") as file, matplotlib.rc_context(settings):
                draw().savefig(file, format=format_, dpi=160, metadata=undated)
            os.replace(unfinished, path)
        finally:
            with suppress(FileNotFoundError):
                unfinished.unlink()
    except OSError as error:
        raise GrueError(f"cannot write {path}: {error.strerror}") from None
    return path
