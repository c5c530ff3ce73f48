"""The entry point of the command line: runs a command and reports an error in one line.

app.py has the commands. It is imported late, so that Ctrl-C during the import is handled, too.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from typing import Any

from grue.errors import INTERRUPTED, GrueError, is_out_of_memory, out_of_memory
from grue.training import stop


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command, by default that of this process, and returns its exit code."""
    if arguments is None:
        return whole_process(lambda: _outcome(sys.argv[1:]))
    return _outcome(arguments)


def whole_process(run: Callable[[], int]) -> int:
    """Runs the CLI; ignores Ctrl-C during shutdown, which may crash JAX."""
    stop.process_is_ours = True
    code = run()
    if code == INTERRUPTED:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return code


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

    # The base class of Typer's usage errors, which has no public name.
    wrong_use: Any = typer.BadParameter.__mro__[2]
    try:
        code = app(with_address(given) or ["--help"], prog_name="grue", standalone_mode=False)
        sys.stdout.flush()
    except wrong_use as error:
        said = error.format_message() or "a command is missing"
        return _complain(f"{said}{_value(error, given)} (grue --help shows what there is)", 2)
    except typer.Abort:
        return _complain("interrupted", INTERRUPTED)
    if code == INTERRUPTED:  # Typer catches Ctrl-C itself.
        return _complain("interrupted", INTERRUPTED)
    return code or 0


def with_address(given: Sequence[str]) -> list[str]:
    """Replaces ``--ray`` without an address by the address that stands for this machine."""
    words = list(given)
    after = [*words[1:], "-"][: len(words)]
    return [
        "--ray=here" if word == "--ray" and follows.startswith("-") else word
        for word, follows in zip(words, after, strict=True)
    ]


def _value(error: Any, given: Sequence[str]) -> str:
    """The out-of-range value of an option, for Typer's message, which leaves it out."""
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
        return f"a part of grue cannot be imported ({error}); install grue again"
    return f"the package {name} is needed and cannot be imported ({error}); install it"


def _prepare_streams() -> None:
    """Replaces closed streams by the null device; characters that cannot be shown become a ?."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
    replace_unreadable(sys.stdout)
    replace_unreadable(sys.stderr)


def replace_unreadable(stream: object) -> None:
    """Shows bytes that are not text, and text that the terminal lacks, as question marks."""
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="replace")


def _complain(message: str, code: int) -> int:
    print(f"grue: {' '.join(message.split())}", file=sys.stderr)
    return code


def _give_up_stdout(code: int) -> int:
    """Discards further output, so that Python's flush at exit does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code
