"""Compiled functions of an environment.

One game is a constant of the program: that is fastest. A set of games is an argument: as constants
the tables of many games would make the program large (docs/many-games.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from grue.engine.environment import Environment


class OfSet:
    """A compiled function whose first argument, a set of games, is fixed."""

    def __init__(self, function: Callable, env: Environment, **options: Any) -> None:
        # Transferred to the device once, not with every call.
        self._env = jax.device_put(env)
        self._function: Any = jax.jit(function, **options)

    def __call__(self, *given: Any) -> Any:
        return self._function(self._env, *given)

    def trace(self, *given: Any) -> Any:
        return self._function.trace(self._env, *given)

    def lower(self, *given: Any) -> Any:
        return self._function.lower(self._env, *given)


def jitted(
    function: Callable,
    env: Environment,
    static: Sequence[int] = (),
    donated: Sequence[int] = (),
    **options: Any,
) -> Any:
    """``function(env, ...)``, compiled, without its first argument.

    ``static`` and ``donated`` are positions among the other arguments, counted from 0.
    """
    if env.command_sets is not None:
        static, donated = (tuple(number + 1 for number in some) for some in (static, donated))
        return OfSet(function, env, static_argnums=static, donate_argnums=donated, **options)

    def of_game(*given: Any) -> Any:
        return function(env, *given)

    of_game.__name__ = function.__name__
    numbers = {"static_argnums": tuple(static), "donate_argnums": tuple(donated)}
    return jax.jit(of_game, **numbers, **options)
