"""drrn: commands scored by their words. Its network and its loss are also in test_network.py and
test_learner.py, with those of the others."""

from __future__ import annotations

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_networks import SIZES, make_network
from small_runs import config, nearly_same, same

import grue
from grue.agents.catalogue import EXPLORERS, GATES
from grue.agents.drrn import TextScorer
from grue.agents.network import Network, NetworkSizes, Outputs
from grue.training.train import train, train_all

NETWORK = make_network(SIZES, jax.random.key(3), TextScorer)
COMMANDS = np.array([[1, 2, 0], [3, 0, 0], [4, 5, 6], [7, 8, 0], [1, 5, 0], [2, 1, 0], [9, 9, 9]])
STATES = jax.random.normal(jax.random.key(4), (6, SIZES.context))
HEADS = jnp.array([0, 1, 2, 2, 0, 1])


@eqx.filter_jit
def outputs_of(network: Network, commands: jax.Array) -> Outputs:
    return network.outputs(HEADS, STATES, network.read_commands(commands))


def test_the_score_by_hand() -> None:
    """φ(W_k h + b_k) · V_k e_a + v_k · e_a + c_k, for two heads and two commands."""
    sizes = NetworkSizes(words=2, commands=2, heads=2, encoder=4, context=2, hidden=2)
    scorer = eqx.tree_at(
        lambda s: [s.first, s.first_bias, s.meaning, s.worth, s.bias],
        TextScorer(sizes, jax.random.key(0)),
        [
            jnp.array([[[1.0, 0.0], [0.0, 1.0]], [[2.0, 1.0], [0.0, 1.0]]]),
            jnp.array([[0.0, 0.0], [1.0, 0.0]]),
            jnp.array([[[1.0, 2.0, 0, 0], [0, 1.0, 1.0, 0]], [[0, 0, 1.0, 0], [1.0, 1.0, 1.0, 0]]]),
            jnp.array([[0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 2.0, 0.0]]),
            jnp.array([0.0, 10.0]),
        ],
    )
    # Normed: (1, 1, -1, -1) and (1, -1, 1, -1).
    columns = scorer.columns(jnp.array([[7.0, 7.0, 1.0, 1.0], [0.1, -0.1, 0.1, -0.1]]))
    # V e of the two commands: (3, 0) and (-1, 0); by the other head (-1, 1) and (1, 1).
    np.testing.assert_allclose(columns.second[0], [[3, -1], [0, 0]], atol=1e-3)
    np.testing.assert_allclose(columns.second[1], [[-1, 1], [1, 1]], atol=1e-3)
    np.testing.assert_allclose(columns.second_bias, [[0, 0], [10 - 1, 10 + 3]], rtol=1e-3)
    found = scorer(jnp.array([0, 1]), jnp.array([[3.0, 2.0], [1.0, 1.0]]), columns)
    # Hidden: (3, 2), and (1 · 2 + 1, 1 + 1) = (3, 2).
    np.testing.assert_allclose(found, [[9, -3], [9 - 3 + 2, 13 + 3 + 2]], rtol=1e-3)
    below = scorer(jnp.int32(0), jnp.array([-1.0, 0.0]), columns)
    small = np.exp(-1) - 1
    np.testing.assert_allclose(below, [3 * small, -small], rtol=1e-3)


@settings(deadline=None, max_examples=25)
@given(st.permutations(range(len(COMMANDS))))
def test_permuted_commands_have_permuted_values(order: list[int]) -> None:
    """To the bit: a command's value does not depend on its place in the list."""
    usual, other = (outputs_of(NETWORK, jnp.asarray(c)) for c in (COMMANDS, COMMANDS[order]))
    np.testing.assert_array_equal(other.values, usual.values[:, np.array(order)])
    np.testing.assert_array_equal(other.logits, usual.logits[:, np.array(order)])
    assert len(np.unique(usual.values[0])) == len(COMMANDS)


def test_commands_that_come_and_go_change_nothing_else() -> None:
    """Nor do words of padding, or a command that is there twice."""
    usual = outputs_of(NETWORK, jnp.asarray(COMMANDS))
    wide = jnp.pad(jnp.asarray(COMMANDS[[5, 2, 5]]), ((0, 0), (0, 4)))
    few = outputs_of(NETWORK, wide)
    np.testing.assert_allclose(few.values, usual.values[:, np.array([5, 2, 5])], rtol=1e-6)
    np.testing.assert_allclose(few.logits, usual.logits[:, np.array([5, 2, 5])], rtol=1e-6)


def test_the_number_of_commands_is_not_in_the_weights() -> None:
    """So that weights learned with some commands score any others."""
    fewer, more = (
        eqx.filter_eval_shape(Network, SIZES._replace(commands=n), jax.random.key(0), TextScorer)
        for n in (2, 500)
    )
    assert jax.tree.map(jnp.shape, fewer) == jax.tree.map(jnp.shape, more)


def test_the_cached_columns_are_those_of_the_weights() -> None:
    """``act`` scores with what the last update left, by the encoder without a gradient."""
    words, read = jnp.asarray(COMMANDS), eqx.filter_jit(Network.read_commands)
    direct = NETWORK.of_commands(eqx.filter_jit(NETWORK.encoder)(words))
    for cached in (read(NETWORK, words, NETWORK.encoder.table()), read(NETWORK, words)):
        for one, two in zip(jax.tree.leaves(cached), jax.tree.leaves(direct), strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_all_gates_and_explorers_and_resuming(tmp_path: Path) -> None:
    """In one program; resumed to the bit; a run of it can be played, and made again alone."""
    explorers = list(EXPLORERS)
    often = dict.fromkeys(("metrics_every", "learning_starts", "target_every"), 100)

    def runs(steps: int) -> list[grue.TrainConfig]:
        return [
            config(
                agent="drrn", gate=gate, explore=explorers[i % len(explorers)], steps=steps, **often
            )
            for i, gate in enumerate(GATES)
        ]

    whole = train_all(runs(400), tmp_path / "whole", together=True).runs
    assert {run.config.gate for run in whole} == set(GATES)
    assert {run.config.explore for run in whole} == set(EXPLORERS)
    for run in whole:
        assert run.metrics["updates"].tolist() == [0, 25, 25, 25]
        learned = run.metrics["q_loss"][1:]
        assert np.isfinite(learned).all()
        assert learned[-1] != learned[0]
    train_all(runs(200), tmp_path / "resumed", together=True)
    train_all(runs(400), tmp_path / "resumed", resume=True, together=True)
    folders = [path.name for path in sorted((tmp_path / "whole").iterdir()) if path.is_dir()]
    assert len(folders) == len(GATES)
    for name in folders:
        same(tmp_path / "whole" / name, tmp_path / "resumed" / name)
    (name,) = (name for name in folders if "oracle" in name)
    alone = next(run for run in runs(400) if run.gate == "oracle")
    train(alone, tmp_path / "alone")
    nearly_same(tmp_path / "alone" / name, tmp_path / "whole" / name, 4)
    assert len(grue.evaluate(tmp_path / "whole" / name, episodes=2, epsilon=0.5)) == 2
