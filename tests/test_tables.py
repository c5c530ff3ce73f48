"""How the tables of games are stored and read, and what printing relies on."""

from __future__ import annotations

import importlib
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import grue
from grue.engine import printing
from grue.engine.compiled import CompiledEnv
from grue.engine.drawing import Draw
from grue.engine.tables import Most, Tables, TablesOfOne, derived, in_blocks, narrow
from grue.engine.turns import Turns


@pytest.fixture(scope="module")
def level() -> CompiledEnv:
    return grue.make("saladworld-2", "compiled")


@pytest.mark.parametrize(
    ("numbers", "kind"),
    [
        ([0, 255], np.uint8),
        ([-1, 127], np.int8),
        ([-1, 128], np.int16),
        ([0, 40_000], np.uint16),
        ([-1, 40_000], np.int32),
    ],
)
def test_tables_are_as_narrow_as_their_numbers(numbers: list[int], kind: type) -> None:
    table = narrow(np.array(numbers, np.int32), "outcome_room")
    assert table.dtype == kind
    assert table.tolist() == numbers


def test_words_stay_as_they_are_given_out() -> None:
    assert narrow(np.array([1, 2], np.int32), "tokens").dtype == np.int32


def test_a_set_reads_the_tables_of_its_games() -> None:
    """Also where they are stored in fewer bytes, or in blocks."""
    env = grue.make_many(["saladworld-1", "saladworld-3"], "compiled")
    entries = env._fixed.entries
    most = Most.of_all(entry.compiled.arrays for entry in entries)
    for game in range(2):
        t = TablesOfOne(env._rows, env._ended, env._begins, jnp.int32(game))
        own = derived(env._fixed.aligned(game).arrays, most)
        for name, table in own.items():
            if name in env._ended:
                found = t[name][jnp.arange(len(table))]
            else:
                found = getattr(t, name)
            assert np.array_equal(found, table), name
        for start in (0, 7):
            run = t.run("piece_start", jnp.int32(start), most.pieces)
            assert np.array_equal(run, own["piece_start"][start : start + most.pieces])


def test_equal_stretches_of_a_long_table_are_stored_once() -> None:
    table = np.append(np.tile(np.arange(16, dtype=np.int16), 50), [5, 6]).astype(np.int16)
    found = in_blocks({"decision_table": table, "masks": table})
    assert found["masks"] is table
    assert len(found["decision_table_blocks"]) == 2
    whole = found["decision_table_blocks"][found["decision_table"]].reshape(-1)
    assert np.array_equal(whole[: len(table)], table)


def test_rows_behind_a_text_are_not_printed(level: CompiledEnv) -> None:
    """They are of the text after it, whose pieces may be lists and whose guards may hold."""
    state, _ = level.reset()
    arrays = dict(derived(level.game.arrays))
    most = Most.of(level.game.arrays)
    behind = len(level.game.arrays["piece_start"])
    text = partial(printing.printed, points=0, ending=0)
    last = jnp.int32(len(arrays["frame_start"]) - 1)
    assert arrays["frame_start"][last] + arrays["frame_count"][last] == behind
    before = text(Tables(arrays), level._fixed.sizes, state, last)
    for name, other in (("piece_list", 0), ("piece_length", 3), ("piece_start", 1)):
        arrays[name] = np.append(arrays[name][:behind], np.full(most.pieces, other, np.int32))
    after = text(Tables(arrays), level._fixed.sizes, state, last)
    assert before.any()
    assert np.array_equal(before, after)


@pytest.mark.parametrize(("length", "kind"), [(31, np.int16), (200, np.int16), (340, np.int32)])
def test_both_ways_to_shift_tokens_agree(length: int, kind: type) -> None:
    """One is for CPUs, one for all other devices; numbers of 16 bits may run over."""
    chance = np.random.default_rng(0)
    counts = (38, 16, 2)
    where = [jnp.asarray(chance.integers(0, length + 3, n), jnp.int32) for n in counts]
    change = [jnp.asarray(chance.integers(-(2**15), 2**15, n), kind) for n in counts]
    position = jnp.arange(length, dtype=kind)
    added = printing._added(position, where, change)
    assert np.array_equal(added, printing._compared(position, where, change))
    assert added.dtype == kind


def test_other_devices_print_the_same(level: CompiledEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    state, _ = level.reset()
    here = level.look(state)
    monkeypatch.setattr(printing, "_added", printing._compared)
    there = Turns(Tables(level._tables), level._fixed.sizes).look(state)
    assert np.array_equal(here, there)


def test_games_are_drawn_by_the_bits_of_jax() -> None:
    draw = Draw.of(7, weights=[1, 0, 2, 5, 1, 1, 3])
    streams = jax.random.bits(jax.random.key(3), (500, 2), jnp.uint32)
    episodes = jnp.arange(500, dtype=jnp.int32)

    def by_jax(stream: jax.Array, episode: jax.Array) -> jax.Array:
        key = jax.random.wrap_key_data(stream, impl="threefry2x32")
        chance = jax.random.uniform(jax.random.fold_in(key, episode))
        return jnp.searchsorted(jnp.asarray(draw.below), chance, side="right")

    found = jax.vmap(lambda stream, episode: draw.next(stream, episode, 0))(streams, episodes)
    assert np.array_equal(found, jax.vmap(by_jax)(streams, episodes))
    assert len(set(found.tolist())) == 6


@pytest.mark.slow
def test_the_benchmark_times_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    many = _benchmark(monkeypatch)
    order: list[bool] = []
    rate = many.Played.rate
    monkeypatch.setattr(
        many.Played, "rate", lambda self: (order.append(self is first[0]), rate(self))[1]
    )
    first: list[object] = []
    begin = many.Played.__init__

    def noted(self: object, *args: object, **options: object) -> None:
        first.append(self)
        begin(self, *args, **options)

    monkeypatch.setattr(many.Played, "__init__", noted)
    env = grue.make_many(["saladworld-1"], "compiled")
    given = SimpleNamespace(seconds=0.01, rounds=2)
    row = many.row_of(env, ["saladworld-1"], 8, given)
    assert order == [True, False, True, False]
    assert set(row) == {"batch", "together", "one_at_a_time", "of", "ratio"}


def _benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    folder = Path(__file__).parent.parent / "benchmarks"
    monkeypatch.syspath_prepend(folder)
    return importlib.import_module("many")
