"""A played episode as text: commands, answers, and the agent's values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from grue.training.evaluate import Evaluation, PlayedStep, Thought

if TYPE_CHECKING:
    from rich.console import Console

Line = tuple[str, str | None]
"""A text and its style."""
THOUGHT, GAIN = "dim", "green"


def tell(evaluation: Evaluation, episode: int = 0) -> Iterator[Line]:
    """The lines of an episode, with ξ̂ where the agent estimates it."""
    yield evaluation.opening_of(episode), None
    for step in evaluation.record(episode):
        yield "", None
        yield f"> {step.command}", "bold"
        yield _thoughts(step, evaluation.judges), THOUGHT
        gain = _gain(step, evaluation.max_score)
        if gain:
            yield gain, GAIN
        yield step.text, None
    yield "", None
    yield _ending(evaluation, episode), "bold"


def tell_briefly(evaluation: Evaluation, episode: int = 0) -> Iterator[Line]:
    """One line for each step."""
    record = evaluation.record(episode)
    width = max(len(step.command) for step in record)
    for step in record:
        thought = "forced" if step.forced else ""
        known = [t for t in step.top if t.command == step.command]
        if known and not step.forced:
            thought = _opinion(known[0], evaluation.judges)
        score = _of(step.score, evaluation.max_score)
        done = "  " + " ".join(step.subtasks) if step.subtasks else ""
        line = f"{step.number:>3}  {step.command:{width}}  {score:>7}  {thought}{done}"
        yield line.rstrip(), GAIN if step.subtasks else None
    yield _ending(evaluation, episode), "bold"


def print_lines(lines: Iterable[Line], console: Console) -> None:
    for text, style in lines:
        # A terminal wraps lines between words; a pipe gets whole lines.
        console.print(
            text, style=style, markup=False, highlight=False, soft_wrap=not console.is_terminal
        )


def _thoughts(step: PlayedStep, judges: bool) -> str:
    number = "1 candidate" if step.candidates == 1 else f"{step.candidates} candidates"
    top = ", ".join(f"{thought.command} {_opinion(thought, judges)}" for thought in step.top)
    parts = [f"head {step.head + 1}", number, top]
    if step.forced:
        parts.insert(0, "forced")
    return "  " + " · ".join(parts)


def _opinion(thought: Thought, judges: bool) -> str:
    value = f"Q {thought.value:.2f}"
    return f"{value} ξ̂ {thought.admissibility:.2f}" if judges else value


def _gain(step: PlayedStep, max_score: int | None) -> str:
    """The reward and the subtasks of a step; empty for most steps."""
    if not step.reward and not step.subtasks:
        return ""
    return " ".join([f"  {step.reward:+d}, score {_of(step.score, max_score)}.", *step.subtasks])


def _of(score: int, most: int | None) -> str:
    return str(score) if most is None else f"{score}/{most}"


def _ending(evaluation: Evaluation, episode: int) -> str:
    won = "won" if evaluation.won[episode] else "not won"
    steps = int(evaluation.steps[episode])
    score = f"score {_of(int(evaluation.score[episode]), evaluation.max_score)}"
    return f"The game was {won} in {steps} step{'' if steps == 1 else 's'}, {score}."
