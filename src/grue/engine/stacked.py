"""Many different games in one program: the tables of all games; the state says which is played.

Small tables have a row for each game. Look-up tables lie end to end, so that a game with many
outcomes or long texts makes no other larger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from grue.engine.aligned import Aligned, widened
from grue.engine.compiled import CompiledEnv
from grue.engine.drawing import Draw
from grue.engine.environment import Environment
from grue.engine.infos import Infos
from grue.engine.layout import Layout, shared_words
from grue.engine.step import Step
from grue.engine.tables import Most, TablesOfOne, derived, in_blocks, narrow
from grue.engine.turns import Sizes, State, Turns
from grue.errors import UsageError
from grue.games.game import Game
from grue.games.gamefile import CompiledGame, digest_of
from grue.games.logic import Facts
from grue.games.playable import Knowledge
from grue.games.tokens import SharedVocabulary

END_TO_END = ("command_", "decision_", "reading_", "outcome_", "frame_", "piece_", "guard_")
END_TO_END += ("operations", "masks", "event_masks", "tokens")
"""Prefixes of the names of look-up tables."""


class SetState(NamedTuple):
    """A game of a set under way."""

    game: Array
    """The number of the game."""
    stream: Array
    """Random bits, for the games of all episodes."""
    episode: Array
    world: State

    @property
    def score(self) -> Any:
        return self.world.score

    @property
    def steps(self) -> Any:
        return self.world.steps

    @property
    def over(self) -> Any:
        return self.world.over


class CompiledEntry(NamedTuple):
    """A compiled game of a set."""

    compiled: CompiledGame
    source: Game | None = None
    """The game that it was compiled from, for ``facts`` and ``infos``."""

    @property
    def name(self) -> str:
        return self.compiled.name


class StackedEnv(Environment):
    """``env.reset(key) -> state, step`` draws a game; ``env.step(state, action)`` plays it.

    It is a pytree, whose leaves are the tables of all games. Programs should take it as an
    argument: as constants, the tables of many games would make them large.
    """

    def __init__(
        self,
        entries: Sequence[CompiledEntry],
        vocabulary: SharedVocabulary,
        commands: tuple[str, ...],
        episode_steps: int | None = None,
        draw: Draw | None = None,
        left_out: tuple[tuple[str, str], ...] = (),
    ) -> None:
        fixed = _FixedSet(tuple(entries), vocabulary, commands, episode_steps, left_out)
        draw = Draw.of(len(entries)) if draw is None else draw
        self._become(fixed, (*_laid_out(fixed), draw, None))

    def _become(self, fixed: _FixedSet, leaves: tuple[Any, ...]) -> None:
        self._fixed = fixed
        self._rows, self._ended, self._begins, self.draw, self._known_starts = leaves
        layout = fixed.layout
        self.commands = layout.commands
        self.vocabulary = layout.vocabulary
        self.observation_length = layout.sizes["observation_length"]
        self.episode_steps = max(fixed.limits)
        self.episode_limits = np.array(fixed.limits)
        """Of each game; ``episode_steps`` is the largest."""
        self.names = tuple(entry.name for entry in fixed.entries)
        self.max_scores = np.array([e.compiled.header["max_score"] for e in fixed.entries])
        """Of each game."""
        self.max_score = int(self.max_scores.max())
        self.subtask_names = fixed.subtask_names
        self.subtask_counts = np.array([len(e.compiled.header["subtasks"]) for e in fixed.entries])
        """Of each game."""
        self.command_sets = fixed.command_sets
        self.digest = fixed.digest
        self.digests = tuple(entry.compiled.header["game_hash"] for entry in fixed.entries)
        """Of each game."""
        self.knows = Knowledge(chance=len(fixed.entries) > 1)
        self.near = tuple(e.name for e in fixed.entries if e.compiled.header.get("near"))
        """Games that are exact only while the things of a command are in sight."""
        self.left_out = fixed.left_out
        """Games that are not in the set, with the reasons."""

    # The pure functions

    def reset(self, key: Any = None, game: Array | int | None = None) -> tuple[SetState, Step]:
        """Begins a game that is drawn by the key, or the game with a given number.

        In a jitted program the number cannot be checked.
        """
        if key is None:
            stream = jnp.zeros(2, jnp.uint32)
        else:
            stream = jax.random.bits(key, (2,), jnp.uint32)
        episode = jnp.int32(0)
        self._check_number(game)
        number = self.draw.first(stream) if game is None else jnp.asarray(game, jnp.int32)
        return self._begin(number, stream, episode)

    def _check_number(self, game: Any) -> None:
        if game is None or isinstance(game, Tracer):
            return
        known = len(self.names)
        if not ((np.asarray(game) >= 0) & (np.asarray(game) < known)).all():
            raise UsageError(f"there is no game {game}; use 0 to {known - 1}")

    def restart(self, state: SetState) -> tuple[SetState, Step]:
        """Draws the next game and begins it."""
        episode = state.episode + 1
        number = self.draw.next(state.stream, episode, state.game)
        return self._begin(number, state.stream, episode)

    def _begin(self, game: Array, stream: Array, episode: Array) -> tuple[SetState, Step]:
        world, step = jax.tree.map(lambda leaf: jnp.asarray(leaf)[game], self._starts)
        return SetState(game, stream, episode, world), step

    def step(self, state: SetState, action: Array | int) -> tuple[SetState, Step]:
        """Takes a command by its number.

        A game answers a command that it does not have with "You can't see any such thing.": this
        spends a step and changes nothing. ``exists`` tells these commands apart.
        """
        world, step = self._turns(state.game).step(state.world, action)
        return state._replace(world=world), step

    def look(self, state: SetState) -> Array:
        return self._turns(state.game).look(state.world)

    def inventory(self, state: SetState) -> Array:
        return self._turns(state.game).inventory(state.world)

    def admissible_set(self, state: SetState) -> Array:
        """For each command of the set, whether it would change the state."""
        return self._turns(state.game).admissible_set(state.world)

    def exists(self, state: SetState) -> Array:
        """For each command of the set, whether it is one of the state's game."""
        own = jnp.asarray(self._rows["own_command"])[state.game]
        return own[: len(self.commands)] != self._fixed.layout.lacking

    def fraction(self, state: SetState, step: Step) -> Array:
        """The fraction of the subtasks of the state's game that are done."""
        count = jnp.asarray(self.subtask_counts, jnp.float32)[state.game]
        return step.subtasks.sum(dtype=jnp.float32) / count

    def won(self, state: SetState, step: Step) -> Array:
        return step.subtasks.sum() == jnp.asarray(self.subtask_counts)[state.game]

    def _turns(self, game: Array) -> Turns:
        table = TablesOfOne(self._rows, self._ended, self._begins, game)
        return Turns(table, self._fixed.sizes)

    @property
    def _starts(self) -> tuple[State, Step]:
        if self._known_starts is None:
            # Compiled on its own, so that it runs immediately even while another program is traced.
            tables = self._rows, self._ended, self._begins
            with jax.disable_jit(False):
                program = jax.jit(_starts, static_argnums=0).lower(self._fixed.sizes, *tables)
                self._known_starts = jax.tree.map(np.asarray, program.compile()(*tables))
        return self._known_starts

    # On the host

    @property
    def no_command(self) -> int:
        """The action that stands for any text that is no command of the set."""
        return len(self.commands)

    def with_draw(self, draw: Draw) -> StackedEnv:
        """The same games, drawn differently. Programs that take the set as an argument remain."""
        if len(draw.below) != len(self.names):
            raise UsageError(
                f"the draw is of {len(draw.below)} games, and the set has {len(self.names)}; "
                f"give Draw.of({len(self.names)}, ...)"
            )
        other = object.__new__(StackedEnv)
        tables = self._rows, self._ended, self._begins
        other._become(self._fixed, (*tables, draw, self._starts))
        return other

    def single(self, game: int) -> CompiledEnv:
        """One game by itself, with its own commands and words."""
        self._check_number(game)
        return self._fixed.single(int(game))

    def own(self, state: SetState) -> State:
        """The state converted to one of ``single(state.game)``."""
        if np.ndim(state.game):
            raise UsageError(
                "this is for one state: take one of a batch, as in "
                "jax.tree.map(lambda leaf: leaf[0], state)"
            )
        world = jax.tree.map(np.asarray, state.world)
        game = self._fixed.aligned(int(state.game))
        things, quests = game.own["things"], game.own["quests"] - 1
        old = np.zeros(self._fixed.layout.locations, np.int32)
        old[game.locations] = np.arange(len(game.locations))
        last = world.statuses[-1:]
        return world._replace(
            locations=old[world.locations[:things]],
            recency=world.recency[:things],
            statuses=np.append(world.statuses[: game.own["statuses"]], last),
            quests=world.quests[:quests],
            variables=world.variables[game.variables],
        )

    def facts(self, state: SetState) -> Facts:
        """The facts of the world now, as TextWorld states them, with the identifiers of things."""
        return self.single(int(state.game)).facts(self.own(state))

    def infos(self, state: SetState) -> Infos:
        """Everything that TextWorld's EnvInfos tell of one state, by name."""
        return self.single(int(state.game)).infos(self.own(state))


class _FixedSet:
    """Everything of a set except its tables."""

    def __init__(
        self,
        entries: tuple[CompiledEntry, ...],
        vocabulary: SharedVocabulary,
        commands: tuple[str, ...],
        episode_steps: int | None,
        left_out: tuple[tuple[str, str], ...],
    ) -> None:
        self.entries, self.left_out = entries, left_out
        self.layout = Layout.of([entry.compiled for entry in entries], vocabulary, commands)
        self.limits = [
            entry.compiled.header["episode_steps"] if episode_steps is None else episode_steps
            for entry in entries
        ]
        self._singles: dict[int, CompiledEnv] = {}

    @cached_property
    def sizes(self) -> Sizes:
        sizes = self.layout.sizes
        return Sizes(
            commands=len(self.layout.commands),
            observation_length=sizes["observation_length"],
            most_pieces=sizes["most_pieces"],
            most_tokens=sizes["most_tokens"],
            episode_steps=max(self.limits),
        )

    @cached_property
    def digest(self) -> str:
        return joined_digest([entry.compiled.header["game_hash"] for entry in self.entries])

    @cached_property
    def subtask_names(self) -> tuple[str, ...]:
        headers = [entry.compiled.header for entry in self.entries]
        return names_of_subtasks([[text for text, _ in h["subtasks"]] for h in headers])

    @cached_property
    def command_sets(self) -> np.ndarray:
        owned = [frozenset(entry.compiled.commands) for entry in self.entries]
        return np.array([[command in own for command in self.layout.commands] for own in owned])

    def aligned(self, game: int) -> Aligned:
        return Aligned(self.entries[game].compiled, self.layout)

    def single(self, game: int) -> CompiledEnv:
        if game not in self._singles:
            compiled, source = self.entries[game]
            self._singles[game] = CompiledEnv(compiled, self.limits[game], source)
        return self._singles[game]

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        digests = tuple(digest_of(entry.compiled.arrays) for entry in self.entries)
        layout = self.layout
        return digests, layout.vocabulary, layout.commands, tuple(self.limits), self.left_out

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, _FixedSet) and self._key == other._key)

    def __hash__(self) -> int:
        return hash(self._key)


def alike(games: Sequence[CompiledGame]) -> list[CompiledEnv]:
    """Games with common sizes, words and commands: their tables can be stacked and vmapped.

    Each pytree has the same structure, so what differs between games is in the tables alone.
    """
    commands = tuple(dict.fromkeys(c for game in games for c in game.commands))
    vocabulary = shared_words(game.vocabulary.words for game in games)
    layout = Layout.of(games, vocabulary, commands)
    most = Most.of_all(game.arrays for game in games)
    tables = [derived(Aligned(game, layout).arrays, most) for game in games]
    for name in tables[0]:
        if name.startswith(END_TO_END):
            longest = max(len(one[name]) for one in tables)
            for one in tables:
                one[name] = widened(one[name], (longest, *one[name].shape[1:]))
    headers = [game.header for game in games]
    header = {
        **{n: max(h[n] for h in headers) for n in ("max_score", "episode_steps")},
        **{n: layout.sizes[n] for n in ("observation_length", "most_pieces")},
        "name": f"{len(games)} games",
        "commands": commands,
        "words": vocabulary.words,
        "game_hash": joined_digest([h["game_hash"] for h in headers]),
        "subtasks": [
            (text, 0)
            for text in names_of_subtasks([[t for t, _ in h["subtasks"]] for h in headers])
        ],
    }
    return CompiledEnv.alike(header, tables)


def joined_digest(digests: Sequence[str]) -> str:
    """The digest of a set; that of the game if there is only one."""
    if len(digests) == 1:
        return digests[0]
    return digest_of({"games": np.frombuffer("\n".join(digests).encode(), np.uint8)})


def names_of_subtasks(games: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """The name if all games that have this subtask agree on it, else a number."""
    found = []
    for number in range(max(map(len, games))):
        names = {names[number] for names in games if len(names) > number}
        found.append(names.pop() if len(names) == 1 else f"subtask {number + 1}")
    return tuple(found)


def _laid_out(fixed: _FixedSet) -> tuple[dict[str, np.ndarray], ...]:
    """Tables with a row for each game, tables end to end, and where each game's begin."""
    most = Most.of_all(entry.compiled.arrays for entry in fixed.entries)
    count = range(len(fixed.entries))
    games = [in_blocks(derived(fixed.aligned(number).arrays, most)) for number in count]
    rows: dict[str, np.ndarray] = {"episode_steps": np.array(fixed.limits, np.int32)}
    ended: dict[str, np.ndarray] = {}
    begins: dict[str, np.ndarray] = {}
    for name in games[0]:
        tables = [game[name] for game in games]
        if not name.startswith(END_TO_END):
            rows[name] = narrow(np.stack(tables), name)
            continue
        lengths = np.cumsum([0, *map(len, tables)])
        if lengths[-1] >= 2**31:
            raise UsageError(f"{len(games)} games are too many for one set; make two")
        ended[name] = narrow(np.concatenate(tables), name)
        begins[name] = lengths[:-1].astype(np.int32)
    return rows, ended, begins


def _starts(
    sizes: Sizes, rows: Mapping[str, Any], ended: Mapping[str, Any], begins: Mapping[str, Any]
) -> tuple[State, Step]:
    """How each game begins."""

    def one(game: Array) -> tuple[State, Step]:
        return Turns(TablesOfOne(rows, ended, begins, game), sizes).reset()

    return jax.vmap(one)(jnp.arange(len(rows["episode_steps"])))


def _flatten(env: StackedEnv) -> tuple[tuple[Any, ...], _FixedSet]:
    return (env._rows, env._ended, env._begins, env.draw, env._starts), env._fixed


def _unflatten(fixed: _FixedSet, leaves: Any) -> StackedEnv:
    env = object.__new__(StackedEnv)
    env._become(fixed, tuple(leaves))
    return env


jax.tree_util.register_pytree_node(StackedEnv, _flatten, _unflatten)
