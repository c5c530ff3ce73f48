"""Fixtures that several test files share."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

import grue
from grue.engine.hosted import HostedEnv

LEVELS = tuple(range(1, 8))


@pytest.fixture(params=LEVELS, ids=lambda n: f"level{n}")
def level(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture(scope="session")
def hosted() -> Iterator[Callable[[int], HostedEnv]]:
    """One emulator for each level: states are pure, so tests can share it."""
    environments: dict[int, HostedEnv] = {}

    def get(number: int) -> HostedEnv:
        if number not in environments:
            environments[number] = HostedEnv(grue.load(f"saladworld-{number}"))
        return environments[number]

    yield get
    for environment in environments.values():
        environment.close()


@pytest.fixture
def env(level: int, hosted: Callable[[int], HostedEnv]) -> HostedEnv:
    return hosted(level)


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Seeded by the test's own name, so that a failure comes back."""
    return random.Random(request.node.nodeid)
