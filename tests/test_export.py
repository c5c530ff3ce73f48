"""Config files and exported tables."""

from __future__ import annotations

import csv
import json
import struct
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

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


TRAIN = ["train", "saladworld-1", "--agent", "tabular", "--seeds", "0,1", "--steps"]
SHORT = ["--set", "metrics_every=200", "--set", "average_over=200"]


def test_a_parquet_table(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    out = str(tmp_path / "runs")
    assert entry.main([*TRAIN, "400", *SHORT, "--out", out]) == 0
    for name in ("runs.parquet", "runs.csv"):
        assert entry.main(["export", out, "-o", str(tmp_path / name)]) == 0
    table = pandas.read_parquet(tmp_path / "runs.parquet")
    assert table["step"].tolist() == [200, 400, 200, 400]
    assert table["seed"].tolist() == [0, 0, 1, 1]
    assert table["run"].tolist()[0] == NAME
    other = pandas.read_csv(tmp_path / "runs.csv")
    assert list(table.columns) == list(other.columns)
    for name in ("epsilon", "score", "head_1", "episodes"):
        assert table[name].tolist() == other[name].tolist()


def test_without_what_parquet_needs(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert entry.main([*TRAIN, "200", *SHORT, "--out", str(tmp_path / "runs")]) == 0
    capsys.readouterr()
    table = tmp_path / "runs.parquet"
    assert entry.main(["export", str(tmp_path / "runs"), "-o", str(table)]) == 1
    assert "a .parquet file needs pandas and pyarrow" in capsys.readouterr().err
    assert not table.exists()


# Weights & Biases


def test_without_wandb(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    out = tmp_path / "runs"
    assert entry.main([*TRAIN, "1000", "--wandb", "grue", "--out", str(out)]) == 1
    assert capsys.readouterr().err == (
        "grue: --wandb needs the package wandb; install it with pip install 'grue[wandb]'\n"
    )
    assert not out.exists()


def wandb_records(data: bytes) -> Iterator[bytes]:
    """The records of a log as LevelDB has them: in blocks, each after a header of its own."""
    at, parts = 7, b""
    while at + 7 <= len(data):
        if 2**15 - at % 2**15 < 7:  # The end of a block is left empty.
            at += 2**15 - at % 2**15
        _, length, kind = struct.unpack_from("<IHB", data, at)
        if at + 7 + length > len(data):
            return  # It is still being written.
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # Whole, or the last part.
            yield parts
            parts = b""


def finished_records(path: Path) -> list[Any]:
    """The records of a finished log. Another process of wandb writes the last ones a bit later."""
    record: Any = import_module("wandb.proto.wandb_internal_pb2").Record
    for _ in range(300):
        found = [record.FromString(one) for one in wandb_records(path.read_bytes())]
        if found and found[-1].HasField("exit"):
            return found
        time.sleep(0.1)
    raise AssertionError(f"{path} has no end after 30 s")


def test_the_log_of_weights_and_biases(tmp_path: Path, monkeypatch) -> None:
    """Offline: the files are those that ``wandb sync`` uploads, read as wandb defines them."""
    pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    out = tmp_path / "runs"
    command = [*TRAIN, "400", *SHORT, "--wandb", "project-x", "--out", str(out)]
    assert entry.main(command) == 0

    logged: dict[str, list[dict[str, str]]] = {}
    for path in sorted(out.glob("wandb/offline-run-*/*.wandb")):
        name = ""
        for record in finished_records(path):
            if record.HasField("run"):
                name = record.run.display_name
                assert record.run.project == "project-x"
                settings = {one.key: one.value_json for one in record.run.config.update}
                assert settings["agent"] == '"tabular"'
            if record.HasField("history"):
                items = record.history.item
                row = {one.key or one.nested_key[0]: one.value_json for one in items}
                logged.setdefault(name, []).append(row)
    assert sorted(logged) == [NAME, NAME.replace("seed0", "seed1")]
    for name, rows in logged.items():
        lines = (out / name / "metrics.jsonl").read_text().splitlines()
        assert [row["_step"] for row in rows] == ["200", "400"]
        for row, line in zip(rows, map(json.loads, lines), strict=True):
            for key in ("score", "epsilon", "episodes", "fraction"):
                assert json.loads(row[key]) == line[key]
            assert json.loads(row["head_1"]) == line["heads"][0]
