"""Where the command line begins and ends: what goes wrong is told in one line.

The commands are in app.py, which is imported here only when it is wanted: an import takes long
enough to be interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import IO, Any

from grue.cli.interrupts import whole_process
from grue.errors import INTERRUPTED, GrueError, is_out_of_memory, out_of_memory


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code; without arguments, that of this process."""
    if arguments is None:
        return whole_process(lambda: _outcome(sys.argv[1:]))
    return _outcome(arguments)


def _outcome(given: Sequence[str]) -> int:
    try:
        _prepare_streams()
        return _run(given)
    except GrueError as error:
        return _complain(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _complain("interrupted", INTERRUPTED)
    except BrokenPipeError:
        return _give_up_stdout(1)
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        return _give_up_stdout(_complain(f"{name}{error.strerror or error}", 1))
    except ImportError as error:
        return _complain(missing_package(error), 1)
    except Exception as error:
        if is_out_of_memory(error):
            return _complain(str(out_of_memory(error)), 1)
        raise


def _run(given: Sequence[str]) -> int:
    import typer

    from grue.cli.app import app

    # Typer has no name for what its wrong uses have in common.
    wrong_use: Any = typer.BadParameter.__mro__[2]
    try:
        code = app(given or ["--help"], prog_name="grue", standalone_mode=False)
        sys.stdout.flush()
    except wrong_use as error:
        said = error.format_message() or "a command is missing"
        return _complain(f"{said}{_value(error, given)} (grue --help shows what there is)", 2)
    except typer.Abort:
        return _complain("interrupted", INTERRUPTED)
    if code == INTERRUPTED:  # Typer catches Ctrl-C itself.
        return _complain("interrupted", INTERRUPTED)
    return code or 0


def _value(error: Any, given: Sequence[str]) -> str:
    """What was given for an option that is out of its range: the message does not tell."""
    if "Input should be" not in error.format_message():
        return ""
    for option in getattr(getattr(error, "param", None), "opts", ()):
        for at, word in enumerate(given):
            if word == option and at + 1 < len(given):
                return f", not {given[at + 1]}"
            if word.startswith(f"{option}="):
                return f", not {word.removeprefix(f'{option}=')}"
    return ""


def missing_package(error: ImportError) -> str:
    name = (error.name or "").partition(".")[0]
    if not name or name == "grue":
        return f"a part of grue cannot be imported ({error}); install it again"
    return f"this needs the package {name}, and it cannot be imported ({error}); install it"


def _prepare_streams() -> None:
    """Streams that are closed swallow what they get; what one cannot show becomes a ?."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, _nowhere(mode))
    replace_unreadable(sys.stdout)
    replace_unreadable(sys.stderr)


def _nowhere(mode: str) -> IO[str]:
    return open(os.devnull, mode)


def replace_unreadable(stream: object) -> None:
    """Bytes that are no text, or text that the terminal cannot show, become question marks."""
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="replace")


def _complain(message: str, code: int) -> int:
    print(f"grue: {' '.join(message.split())}", file=sys.stderr)
    return code


def _give_up_stdout(code: int) -> int:
    """Lets Python's last flush at exit succeed after a full disk or a closed pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


if __name__ == "__main__":
    sys.exit(main())
