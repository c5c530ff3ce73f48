"""Benchmarks of many small runs: what has ended is kept, and is not made again."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import exploration
import pytest
from exploration import EXPLORING, VARIANTS
from sweep import keep, told

Row = dict[str, Any]


def train_one(condition: Row) -> Row:
    if condition["seed"] == 13:
        raise ValueError("an unlucky seed")
    return {**condition, "made": "now", "config": condition}


def table(rows: list[Row]) -> str:
    return "".join(f"{row['seed']} {row['made']}\n" for row in rows)


def kept_row(seed: int) -> Row:
    return {"seed": seed, "made": "before", "config": {"seed": seed}}


def run(out: Path, *seeds: int, only_table: bool = False) -> None:
    given = argparse.Namespace(out=out, only_table=only_table)
    keep("some", given, train_one, [{"seed": seed} for seed in seeds], table)


def write_kept(out: Path, *seeds: int) -> Path:
    so_far = out / "some.jsonl"
    so_far.write_text("".join(json.dumps(kept_row(seed)) + "\n" for seed in seeds))
    return so_far


def test_a_sweep_goes_on_with_what_it_is_asked_for(tmp_path: Path) -> None:
    so_far = write_kept(tmp_path, 1, 7)
    run(tmp_path, 0, 1)
    assert (tmp_path / "table.md").read_text() == "0 now\n1 before\n"
    made = json.loads((tmp_path / "some.json").read_text())
    assert [row["seed"] for row in made["rows"]] == [0, 1]
    assert made["command"].startswith("python studies/some.py")
    assert not so_far.exists()
    (tmp_path / "table.md").unlink()
    run(tmp_path, 13, only_table=True)
    assert (tmp_path / "table.md").read_text() == "0 now\n1 before\n"


def test_a_run_that_fails_loses_nothing(tmp_path: Path) -> None:
    so_far = write_kept(tmp_path, 1)
    with pytest.raises(ValueError, match="an unlucky seed"):
        run(tmp_path, 1, 13)
    assert [json.loads(line)["seed"] for line in so_far.read_text().splitlines()] == [1]
    assert not (tmp_path / "some.json").exists()


def test_a_setting_is_told_as_it_is_typed() -> None:
    assert told({}) == "none changed"
    assert told({"target_every": 200, "huber": True}) == "`target_every=200`, `huber=True`"


def exploring_config(variant: str) -> Any:
    own = {"game": "saladworld-4", "story": None, "steps": 600_000, "seeds": "0", "sizes": "small"}
    return exploration.config_of(variant, argparse.Namespace(**own))


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_of_the_study_of_explorers_is_a_config(variant: str) -> None:
    config = exploring_config(variant)
    flat = config.flat()
    assert {name: flat[name] for name in VARIANTS[variant]} == VARIANTS[variant]
    repeats = exploration.command(variant, config)
    assert f"--steps 600000 --seeds 0 --sizes small --variants {variant}" in repeats


def test_the_unaided_variant_differs_by_the_explorer_alone() -> None:
    aided, alone = (exploring_config(name).flat() for name in ("zork-steady", "zork-unaided"))
    assert (aided["explore"], alone["explore"]) == ("achievements", "none")
    assert {n: v for n, v in aided.items() if n not in EXPLORING} == {
        n: v for n, v in alone.items() if n not in EXPLORING
    }
