"""What is cut from a story's output, and what must be left alone."""

from __future__ import annotations

import pytest

import grue
from grue.engine.feedback import Feedback, read_feedback


def status(room: str, score: int, turns: int) -> str:
    return f"\n\n>{'':40}-= {room} =-{score}/{turns}"


def test_status_line_is_cut_and_score_is_read() -> None:
    raw = "\nYou put the lettuce on the counter.\n\n" + status("Kitchen", 15, 8)
    assert read_feedback(raw) == Feedback(
        "You put the lettuce on the counter.", 15, won=False, lost=False, events=()
    )


@pytest.mark.parametrize(("score", "turns"), [(0, 0), (5, 123), (105, 7), (-1, 30)])
def test_score_and_turns_of_any_length(score: int, turns: int) -> None:
    feedback = read_feedback("Fine.\n" + status("Vegetable Market", score, turns))
    assert (feedback.text, feedback.score) == ("Fine.", score)


def test_room_header_inside_the_text_stays() -> None:
    text = "-= Kitchen =-\nYou are in the kitchen.\n\nThere is an exit to the south."
    assert read_feedback(text + "\n" + status("Kitchen", 0, 3)).text == text


def test_only_the_last_prompt_is_the_prompt() -> None:
    text = "The sign says:\n> 3/4 of the salad is lettuce"
    assert read_feedback(text + "\n" + status("Kitchen", 0, 1)).text == text


def test_events_are_the_outer_ones_that_succeeded() -> None:
    raw = (
        "[taking the lettuce]\n"
        "[(1) looking]\n[(1) looking - succeeded]\n"
        "You pick up the lettuce from the ground.\n\n"
        "[taking the lettuce - succeeded]\n"
        "[going north]\n[going north - failed the can't go that way rule]\n"
    )
    feedback = read_feedback(raw + status("Vegetable Market", 10, 4))
    assert feedback.events == ("taking the lettuce",)
    assert feedback.text == "You pick up the lettuce from the ground."


def test_white_space_is_tidied() -> None:
    feedback = read_feedback("\n\n  One.  \n\n\n\n\tTwo.\nThree.\n\n" + status("Kitchen", 0, 1))
    assert feedback.text == "One.\n\nTwo.\nThree."


@pytest.mark.parametrize(
    ("mark", "won", "lost"), [("*** The End ***", True, False), ("*** You lost! ***", False, True)]
)
def test_end_is_cut_before_the_turn_count(mark: str, won: bool, lost: bool) -> None:
    raw = (
        f"Done.\n\n\n    {mark}\n\n\n"
        "You scored 10 out of a possible 15, in 5 turn(s).\n\n\n"
        "Would you like to RESTART, RESTORE a saved game, QUIT or UNDO the last command?\n> "
    )
    assert read_feedback(raw) == Feedback(f"Done.\n\n{mark}", 10, won, lost, ())


def test_end_of_a_game_without_a_maximum() -> None:
    raw = "Done.\n\n*** The End ***\n\nYou scored a total of 3 points, in 9 turns.\n> "
    assert read_feedback(raw).score == 3


@pytest.mark.parametrize("raw", ["", "West of House\n\n>", "You are dead.", "\n> Kitchen 3 4"])
def test_output_without_a_score_is_refused(raw: str) -> None:
    with pytest.raises(grue.BrokenFileError, match="the story's output has no score"):
        read_feedback(raw)
