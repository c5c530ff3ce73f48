"""What a GPU would be given: as far as it can be made without one."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import pytest

from grue.agents.kernels import select
from grue.agents.registry import Setup
from grue.training.algorithm import Algorithm
from grue.training.breakdown import own_times
from grue.training.config import TrainConfig
from grue.training.programs import game_of, parameters_of, program_key

ACT = {"act_encode", "act_step"}
ENCODE = {"encode", "encode_backward", "sum_by_word", "sum_products"}
FORWARD = {"context_outward", "context_begin", "context_step"}
BACKWARD = {"context_cell_back", "context_back", "context_inward", "context_gradient"}
OPTIMISE = {"adam", "sum_of_squares"}


@pytest.mark.slow
@pytest.mark.parametrize("agent_name", ["sc", "drrn"])
def test_training_is_lowered_for_a_gpu(agent_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the paper's sizes, two runs side by side, every kernel."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    config = TrainConfig(game="saladworld-2", agent=agent_name, gate="masking", heads=5)
    # Not by ``build``, which would keep it for others.
    env = game_of(config)
    kind, key = config.kind, program_key(config)
    agent = kind.make(Setup(env, key.settings, key.gates, 5))
    program = Algorithm(env, agent, key.settings, kind.metrics, many=True).program()
    parameters = jax.tree.map(lambda leaf: jnp.stack([leaf] * 2), parameters_of(config))
    run = jax.eval_shape(program.init, jnp.arange(2), parameters)
    traced = program.advance.trace(run, jnp.int32(0), True, config.target_every)
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    named = set(re.findall(r'name = "(\w+)"', text))
    assert named == ACT | ENCODE | FORWARD | BACKWARD | OPTIMISE


def test_the_compiler_knows_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    assert select.compilation() == (1, None, False)
    monkeypatch.setattr(select, "_has_gpu", lambda: True)
    options = select.compilation().options
    assert options
    assert jax.jit(lambda x: x + 1, compiler_options=options)(1) == 2
    with pytest.raises(jax.errors.JaxRuntimeError, match="sideways"):
        jax.jit(lambda x: x + 1, compiler_options=dict.fromkeys(options, "sideways"))(1)


def test_kernels_that_run_at_the_same_time_share_it() -> None:
    events = [{"ts": start, "dur": end - start} for start, end in ((0, 10), (4, 6), (5, 8), (9, 9))]
    # Alone in 0-4 and 8-10; two in 4-5 and 6-8; three in 5-6.
    third = 1 / 3
    assert own_times(events) == pytest.approx([6 + 1.5 + third, 0.5 + third, third + 1, 0])
    assert sum(own_times(events)) == pytest.approx(10)
    assert own_times([]) == []
