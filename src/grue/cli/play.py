"""Plays games in the terminal: with a person, or from a walkthrough."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from grue.cli.entry import replace_unreadable
from grue.errors import GrueError, UsageError
from grue.games.playable import Playable

if TYPE_CHECKING:
    from rich.console import Console

    from grue.engine.hosted import EmulatorEnv
    from grue.engine.step import Step

HELP = """\
Type what you want to do: go north, take lettuce, put lettuce on counter, inventory, look.
undo takes back a step, restart begins again, quit (or exit, or Ctrl-D) leaves the game."""
NO_LIMIT = sys.maxsize
HISTORY_LINES = 1000


def play(game: Playable, hints: bool, seed: int, transcript: Path | None) -> None:
    """Plays until the game ends, the player leaves, or the input ends."""
    from grue.engine.hosted_story import host

    if hints and not game.knows.admissible:
        raise UsageError(
            f"the admissible commands of {game.name} are not known: play it without --hints"
        )
    replace_unreadable(sys.stdin)
    replace_unreadable(sys.stdout)
    env = host(game, NO_LIMIT, one_life=False)
    with _open_transcript(transcript) as file, _input_history():
        TerminalGame(env, hints, seed, file).run()
    env.close()


class CommandPlayed(NamedTuple):
    command: str
    step: Step


def follow_walkthrough(env: EmulatorEnv[Any]) -> Iterator[CommandPlayed]:
    """Plays the walkthrough of the environment's game until the game is over."""
    state, _ = env.reset(env.game.walkthrough_seed)
    for command in env.game.walkthrough:
        state, step = env.step(state, command)
        yield CommandPlayed(command, step)
        if step.terminated:
            break


def run_walkthrough(game: Playable) -> None:
    """Plays a game's walkthrough and prints the score after every command."""
    from grue.engine.hosted_story import host

    width = max(len(command) for command in game.walkthrough)
    outcome = None
    for outcome in follow_walkthrough(host(game)):
        print(f"{outcome.command:{width}}  {outcome.step.score:>3}/{game.max_score}")
    over = outcome is not None and outcome.step.terminated
    score = outcome.step.score if outcome else 0
    won = over and score == game.max_score
    ending = "won" if won else "over" if over else "not over"
    print(f"score {score}/{game.max_score}, game {ending}")
    if not over or score != game.max_score:
        raise GrueError(f"the walkthrough of {game.name} does not finish it with the full score")


class TerminalGame:
    """A session of play. It keeps all states, so that steps can be undone."""

    def __init__(
        self, env: EmulatorEnv[Any], hints: bool, seed: int, transcript: TextIO | None
    ) -> None:
        self.env = env
        self.hints = hints
        self.seed = seed
        self.transcript = transcript
        self.past: list[tuple[Any, Step]] = []
        self.console = _console()

    @property
    def state(self) -> Any:
        return self.past[-1][0]

    @property
    def score(self) -> str:
        if self.env.knows.score_refusal is not None:
            return "its score is not known"
        most = self.env.max_score
        return f"score {self.state.score}" + ("" if most is None else f"/{most}")

    def run(self) -> None:
        self.restart()
        while not self.state.over:
            command = self._read()
            if command is None:
                self.say(f"The input ended; {self.score}.")
                return
            self._note(f"> {command}")
            word = command.lower()
            if word in ("quit", "exit", "q"):
                self.say(f"You left the game; {self.score}.")
                return
            own = {"undo": self.undo, "restart": self.restart, "help": self.help}
            if word in own:
                own[word]()
            elif command:
                self.take(command)
        ending = "You have won" if all(self.state.subtasks) else "The game is over"
        self.say(f"{ending}; {self.score} in {_steps(self.state.steps)}.")

    def restart(self) -> None:
        self.past = [self.env.reset(self.seed)]
        self.show()

    def undo(self) -> None:
        if len(self.past) == 1:
            self.say("There is nothing to undo.")
            return
        self.past.pop()
        self.say("You take back a step.")
        self.show()

    def help(self) -> None:
        self.say(HELP)

    def take(self, command: str) -> None:
        try:
            self.past.append(self.env.step(self.state, command))
        except UsageError as error:
            self.say(f"{error}.")
        else:
            self.show()

    def show(self) -> None:
        self.say(self.past[-1][1].text or "")
        if self.state.over:
            return
        self.say(f"[{self.score}, {_steps(self.state.steps)}]", style="cyan")
        if self.hints:
            commands = zip(self.env.commands, self.past[-1][1].admissible_set, strict=True)
            admissible = ", ".join(command for command, possible in commands if possible)
            self.say(f"[you can: {admissible}]", style="dim")

    def say(self, text: str, style: str | None = None) -> None:
        # A terminal wraps lines between words; a pipe gets whole lines.
        self.console.print(
            text, style=style, markup=False, highlight=False, soft_wrap=not sys.stdout.isatty()
        )
        if style is None:
            self.console.print()
        self._note(text)

    def _note(self, text: str) -> None:
        if self.transcript:
            # After every turn, so that nothing is lost if the process is killed.
            self.transcript.write(f"{text}\n\n")
            self.transcript.flush()

    def _read(self) -> str | None:
        try:
            command = input("> ")
        except EOFError:
            print()
            return None
        if not sys.stdin.isatty():
            print(command)
        return " ".join(command.split())


def _steps(number: int) -> str:
    return "1 step" if number == 1 else f"{number} steps"


def _console() -> Console:
    from rich.console import Console

    return Console(emoji=False)


@contextmanager
def _open_transcript(path: Path | None) -> Iterator[TextIO | None]:
    if path is None:
        yield None
        return
    try:
        file = path.open("x", encoding="utf-8")
    except FileExistsError:
        raise UsageError(f"{path} exists already; give the transcript another name") from None
    except OSError as error:
        raise GrueError(f"cannot write {path}: {error.strerror}") from None
    try:
        with file:
            yield file
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise GrueError(
            f"{path} is cut short: {error.strerror}; make room, or play without --transcript"
        ) from None


@contextmanager
def _input_history() -> Iterator[None]:
    """Lets the arrow keys recall typed lines, also those of earlier sessions."""
    try:
        import readline
    except ImportError:
        readline = None
    if readline is None or not sys.stdin.isatty():
        yield
        return
    path = history_path()
    with suppress(OSError):
        readline.read_history_file(path)
    readline.set_history_length(HISTORY_LINES)
    try:
        yield
    finally:
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(path)


def history_path() -> Path:
    state = os.environ.get("XDG_STATE_HOME")
    folder = Path(state) if state else Path.home() / ".local" / "state"
    return folder / "grue" / "history"
