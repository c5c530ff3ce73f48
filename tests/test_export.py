"""Config files and exported tables."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from grue.cli import entry
from grue.cli.training import conditions, read_settings
from grue.errors import UsageError
from grue.training.runs import read_run

NAME = "saladworld-1-tabular-none-seed0"


def test_a_config_file_and_a_table(tmp_path: Path, capsys) -> None:
    file = tmp_path / "run.toml"
    file.write_text(
        'game = "saladworld-1"\nagent = "tabular"\nsteps = 400\nmetrics_every = 200\nseeds = [0]\n'
    )
    out = tmp_path / "runs"
    assert entry.main(["train", "--config", str(file), "--out", str(out)]) == 0
    run = read_run(out / NAME)
    assert (run.config.agent, run.config.steps, run.config.metrics_every) == ("tabular", 400, 200)
    # A run's own config.json gives the same run, and options override it.
    again = read_settings(out / NAME / "config.json")
    assert conditions(None, "small", (), {}, again) == [run.config]
    [other] = conditions(None, "small", ["steps=800"], {"seeds": "3"}, again)
    assert (other.steps, other.seeds, other.metrics_every) == (800, (3,), 200)

    table = tmp_path / "runs.csv"
    assert entry.main(["export", str(out), "-o", str(table)]) == 0
    with table.open() as lines:
        rows = list(csv.DictReader(lines))
    assert [row["step"] for row in rows] == ["200", "400"]
    assert rows[0]["run"] == NAME
    assert [float(row["epsilon"]) for row in rows] == run.metrics["epsilon"].tolist()
    assert rows[0]["head_1"] == "1.0"
    assert entry.main(["export", str(out), "-o", str(tmp_path / "runs.xls")]) == 2


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("a.toml", "stpes = 3", "the nearest is 'steps'"),
        ("a.toml", "= 3", "cannot be read as TOML"),
        ("a.json", "[" * 100_000, "cannot be read as TOML or JSON"),
        ("a.json", json.dumps([1]), "holds no settings"),
    ],
)
def test_other_config_files(name: str, text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=why):
        read_settings(tmp_path / name)
