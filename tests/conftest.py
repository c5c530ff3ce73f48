"""Fixtures that several test files share."""

from __future__ import annotations

import os
import random
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import checked_types  # noqa: F401  For its effect: it must come before grue.
import jax
import jaxtyping
import pytest
from both_engines import Pair

import grue
from grue.engine.hosted_textworld import HostedEnv
from grue.engine.verify import Verifier
from grue.games.game import Game

LEVELS = tuple(range(1, 8))
COMPILED = "JAX_COMPILATION_CACHE_DIR"
QUICKLY = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
"""The tests spend most of their time in XLA's compiler. Set XLA_FLAGS to test its defaults."""
LONGEST = (
    *("test_ray", "test_game_sets", "test_real_runs", "test_cooking_games", "test_drrn"),
    *("test_many", "test_infos", "test_hosted_training", "test_drill", "test_exploring"),
    *("test_zork_figures", "test_conductor", "test_watch_page", "test_compiler_generated"),
    *("test_names_that_share_words", "test_admissibility", "test_aedqn", "test_compiled"),
)
"""The files that take more than half a minute of two cores, the longest first."""


def pytest_configure(config: pytest.Config) -> None:
    """What one process has compiled, the others and those that tests start need not."""
    os.environ.setdefault("XLA_FLAGS", QUICKLY)  # Read when JAX first looks for devices.
    # What a shell starts in the background ignores Ctrl-C, and so would all that tests start.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if COMPILED not in os.environ:
        folder = tempfile.TemporaryDirectory(prefix="grue-compiled-")
        os.environ[COMPILED] = folder.name
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.2"
        # For this process, which has read its environment, in case it runs the tests itself.
        jax.config.update("jax_compilation_cache_dir", folder.name)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
        config.add_cleanup(folder.cleanup)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first: the last one should not keep a worker when all else is done."""
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.stem, len(place)))


@pytest.fixture(params=LEVELS, ids=lambda n: f"level{n}")
def level(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture
def untyped() -> Iterator[None]:
    """Without the check of annotations, which users do not have: arguments of wrong types."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


T = TypeVar("T")


def kept(make: Callable[[Game], T], close: Callable[[T], None]) -> Iterator[Callable[[int], T]]:
    """One for each level, made when it is first asked for."""
    made: dict[int, T] = {}

    def get(number: int) -> T:
        if number not in made:
            made[number] = make(grue.load(f"saladworld-{number}"))
        return made[number]

    yield get
    for one in made.values():
        close(one)


@pytest.fixture(scope="session")
def hosted() -> Iterator[Callable[[int], HostedEnv]]:
    """One emulator for each level: states are pure, so tests can share it."""
    yield from kept(HostedEnv, HostedEnv.close)


@pytest.fixture(scope="session")
def pair() -> Iterator[Pair]:
    """Both engines of a level; the compiled one's programs are built once for all tests."""
    yield from kept(Verifier, lambda both: both.real.close())


@pytest.fixture
def env(level: int, hosted: Callable[[int], HostedEnv]) -> HostedEnv:
    return hosted(level)


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Seeded by the test's own name, so that a failure comes back."""
    return random.Random(request.node.nodeid)


@pytest.fixture(scope="session")
def zork_file() -> Callable[[int], Path]:
    """The story file of a release of Zork I; it lies beside the checkout, or in GRUE_SHARED."""
    beside = Path(__file__).resolve().parents[2] / "shared"
    folder = Path(os.environ.get("GRUE_SHARED", beside)) / "zork"

    def get(release: int) -> Path:
        path = folder / {88: "zork1.z5", 119: "zork1-r119.z3"}[release]
        if not path.exists():
            pytest.skip(f"Zork I does not come with grue: there is no {path}")
        return path

    return get


@pytest.fixture(scope="session")
def two_lamps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A game in which "lamp" may mean either lamp, and a text that the compiler does not know."""
    import textworld
    from textworld.generator import compile_game
    from textworld.generator.game import Event, Quest

    maker: Any = textworld.GameMaker()  # whose annotations are not those it takes
    hall = maker.new_room("hall")
    maker.set_player(hall)
    stand = maker.new(type="s", name="stand", desc="You look at it, at [the time of day].")
    lamps = [maker.new(type="o", name=name) for name in ("lamp", "green lamp")]
    hall.add(stand, *lamps)
    maker.quests = [Quest([Event(conditions=[maker.new_fact("on", lamps[1], stand)])], reward=1)]
    options = textworld.GameOptions()
    options.path = str(tmp_path_factory.mktemp("lamps") / "lamps.z8")
    return Path(compile_game(maker.build(), options))


@pytest.fixture(scope="session")
def made_game(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import textworld

    options = textworld.GameOptions()
    options.nb_rooms, options.nb_objects, options.quest_length = 4, 6, 4
    options.seeds = 20
    options.path = str(tmp_path_factory.mktemp("made") / "made.z8")
    return Path(textworld.make(options)[0])


PLAIN = {
    **{"recipe": 1, "take": 1, "go": 1, "recipe_seed": 0, "split": None},
    **dict.fromkeys(("open", "cook", "cut", "drop"), False),
}


@pytest.fixture(scope="session")
def cooking(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes a game of tw-cooking from a seed and the settings that are not plain."""
    import textworld
    from textworld.challenges import CHALLENGES as MAKERS
    from textworld.generator import compile_game as compile_story

    made: dict[str, Path] = {}

    def get(seed: int, **settings: Any) -> Path:
        name = f"cooking-{seed}" + "".join(f"-{k}{int(v)}" for k, v in settings.items())
        if name not in made:
            options = textworld.GameOptions()
            options.seeds = seed
            options.path = str(tmp_path_factory.mktemp("cooking") / f"{name}.z8")
            game = MAKERS["tw-cooking"][1]({**PLAIN, **settings}, options)
            made[name] = Path(compile_story(game, options))
        return made[name]

    return get
