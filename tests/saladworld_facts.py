"""What the paper and the levels' own data say of SaladWorld."""

from __future__ import annotations

from grue.games.saladworld.world import LEVELS

# Jain et al. (2020), Table 1 and the table of subtasks:
# rooms, objects, subtasks, commands, maximum, scores that can be had; then the step limit.
TABLE = {
    1: (4, 2, 2, 8, 15, {10, 15}, 100),
    2: (7, 4, 3, 15, 20, {5, 10, 15, 20}, 200),
    3: (7, 4, 3, 15, 20, {5, 10, 15, 20}, 200),
    4: (9, 8, 4, 50, 25, {5, 10, 15, 20, 25}, 200),
    5: (11, 15, 5, 141, 30, {5, 10, 15, 20, 25, 30}, 200),
    6: (12, 20, 6, 283, 35, {5, 10, 15, 20, 25, 30, 35}, 200),
    7: (12, 20, 7, 295, 40, {5, 10, 15, 20, 25, 30, 35, 40}, 200),
}
REWARDS = (10, 5, 5, 5, 5, 5, 5)
MARKET, LETTUCE, TOMATO, PARSLEY, BANANA, APPLE, MEAL = range(7)


def errands(level: int) -> list[tuple[str, ...]]:
    return [subtask.errand for subtask in LEVELS[level - 1].subtasks]
