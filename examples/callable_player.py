"""Plays text games with any function from a text and commands to a command.

    python examples/callable_player.py saladworld-1 saladworld-2 --episodes 64
    python examples/callable_player.py games/train --player my_module:my_player

The function gets what the game printed and the commands that would change it, and returns one
command, or any other text: the game then answers that it sees no such thing. A language model is
such a function.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

import numpy as np

import grue

Player = Callable[[str, Sequence[str]], str]


def random_player(text: str, commands: Sequence[str]) -> str:
    """Any of the commands that change something."""
    return random.choice(commands)


def play(games: grue.TextGames, player: Player, episodes: int, steps: int, seed: int) -> np.ndarray:
    """Plays all episodes side by side. Returns the share of the full score that each reached."""
    now = games.begin(episodes, seed)
    for _ in range(steps):
        if now.ended.all():
            break
        heard = zip(now.texts, now.commands, now.ended, strict=True)
        said = ["" if ended else player(text, commands) for text, commands, ended in heard]
        now = games.play(now, said)
    return now.shares


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("games", nargs="+", help="names or paths of games, or one folder")
    parser.add_argument("--player", help="module:function; random commands if not given")
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    player = random_player
    if given.player:
        module, _, name = given.player.partition(":")
        player = getattr(import_module(module), name)
    folder = len(given.games) == 1 and Path(given.games[0]).is_dir()
    env = grue.make_many(given.games[0] if folder else given.games, "compiled")
    random.seed(given.seed)
    shares = play(grue.TextGames(env), player, given.episodes, given.steps, given.seed)
    print(
        f"{len(env.names)} games, {given.episodes} episodes: {shares.mean():.2f} of the full score"
    )


if __name__ == "__main__":
    main()
