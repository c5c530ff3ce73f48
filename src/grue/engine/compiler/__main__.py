"""Compiles the games that come with grue, or the ones that are named.

python -m grue.engine.compiler [GAME...]
"""

from __future__ import annotations

import sys

from grue.engine.compiler.build import compile_game
from grue.games.gamefile import compiled_path
from grue.games.registry import game_names, load_textworld

if __name__ == "__main__":
    for name in sys.argv[1:] or game_names():
        game = load_textworld(name)
        compile_game(game).save(compiled_path(game))
        print(compiled_path(game))
