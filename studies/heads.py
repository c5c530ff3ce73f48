"""Which heads of sc are alive: how many hidden units of each head are ever above 0.

    python studies/heads.py --out results/heads
    python studies/heads.py --only-table --out results/heads

Trains sc without a gate on level 3 at the paper's sizes for a few thousand steps, with each
activation and either kind of Adam. Then it measures, over the states of some batches, how many of
each head's hidden units are ever above 0, and the deviation of its largest Q. A head whose units
are all at 0 gives the same values in every state and has no gradient.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from sweep import arguments, keep

LEVEL = 3
LEAST_STATES = 8
"""A head that is seen in fewer is left out."""
BATCHES = 8


def conditions(seeds: int, steps: int) -> Iterator[dict[str, Any]]:
    for seed in range(seeds):
        for activation in ("relu", "elu"):
            for adam_by_head in (False, True):
                yield {
                    "steps": steps,
                    "activation": activation,
                    "adam_by_head": adam_by_head,
                    "seed": seed,
                }


def train_one(condition: dict[str, Any]) -> dict[str, Any]:
    """Runs in a process of its own, on one core."""
    import jax.numpy as jnp

    import grue
    from grue.training.programs import build, parameters_of
    from grue.training.provenance import about

    given = dict(condition)
    seed = given.pop("seed")
    config = grue.TrainConfig(
        game=f"saladworld-{LEVEL}",
        agent="sc",
        seeds=(seed,),
        average_over=given["steps"],
        **given,
    )
    built, own = build(config, config.heads_in_use, many=False), parameters_of(config)
    run = built.program.init(jnp.int32(seed), own)
    for step in range(0, config.steps, config.metrics_every):
        learn = step >= config.learning_starts
        run, _ = built.program.advance(run, jnp.int32(step), learn, config.metrics_every)
    return {
        **condition,
        "heads": alive(built.agent, run.agent, own),
        "config": config.to_json(),
        "about": about(),
    }


def alive(agent: Any, state: Any, own: Any) -> list[dict[str, Any]]:
    """For each head that some batches have states of."""
    import jax
    import jax.numpy as jnp

    from grue.agents import contexts
    from grue.agents.kernels.texts import rows_of
    from grue.agents.learner import distinct_texts

    network, known = state.learned.network, state.kept.contexts
    keys = jax.random.split(jax.random.key(5), BATCHES)
    batches = [agent.sample(state, own, key) for key in keys]
    batch = jax.tree.map(lambda *parts: jnp.concatenate(parts), *batches)
    heads = jax.vmap(jax.vmap(lambda score: contexts.head(known, score, own.heads)))(
        batch.rows.score
    ).T
    texts = distinct_texts(batch, jnp.asarray(agent.command_words), agent.look)
    vectors = network.encoder.read(texts.pool)
    inputs = jnp.concatenate([rows_of(vectors, place) for place in (texts.seen, texts.said)], -1)

    def states(heads: Any, inputs: Any) -> Any:
        def one(memory: Any, at: Any) -> Any:
            memory = network.context(at[0], memory, at[1])
            return memory, memory.h

        return jax.lax.scan(one, network.memory(), (heads, inputs))[1]

    h = jax.vmap(states, in_axes=1, out_axes=1)(heads, inputs)
    n = agent.settings.minimum_history
    h, heads = np.asarray(h)[n:], np.asarray(heads)[n:]
    scorer = network.scorer
    found = []
    for k in range(len(scorer.first)):
        mine = h[heads == k]
        if len(mine) < LEAST_STATES:
            continue
        hidden = mine @ np.asarray(scorer.first[k]) + np.asarray(scorer.first_bias[k])
        best = np.asarray(scorer(jnp.full(len(mine), k), jnp.asarray(mine))).max(1)
        found.append(
            {
                "head": k + 1,
                "states": len(mine),
                "units_alive": round(float((hidden > 0).any(0).mean()), 3),
                "deviation_of_best_value": round(float(best.std()), 4),
            }
        )
    return found


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| activation | Adam | seed | head | states | units alive | deviation of the best value |",
        "|---|---|---|---|---|---|---|",
    ]
    order = sorted(rows, key=lambda r: (r["activation"] != "relu", r["adam_by_head"], r["seed"]))
    for row in order:
        adam = "one for each head" if row["adam_by_head"] else "one for all"
        for head in row["heads"]:
            lines.append(
                f"| {row['activation']} | {adam} | {row['seed']} | {head['head']} "
                f"| {head['states']} | {head['units_alive']:.3f} "
                f"| {head['deviation_of_best_value']:.4f} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = arguments("heads", __doc__)
    parser.add_argument("--steps", type=int, default=5_000)
    given = parser.parse_args()
    keep("heads", given, train_one, conditions(given.seeds, given.steps), table)


if __name__ == "__main__":
    main()
