"""The drill in small: kills and damaged files."""

from __future__ import annotations

import random
import time
from pathlib import Path

import drill
import pytest


@pytest.mark.slow
def test_files(tmp_path: Path) -> None:
    found = drill.drill_files(7, tmp_path, random.Random(3), time.monotonic() + 120)
    assert found["wrong"] == []
    assert sum(row["damaged"] for row in found["kinds"].values()) == 7


@pytest.mark.slow
def test_kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = {"tabular": drill.TRAININGS["tabular"]}
    monkeypatch.setattr(drill, "TRAININGS", chosen)
    found = drill.drill_kills(2, tmp_path, random.Random(1), time.monotonic() + 120)
    assert found == {"tabular": {"kills": 2, "identical": 2}}


def test_damage_changes_the_file() -> None:
    chance = random.Random(0)
    data = bytes(range(256))
    assert sum(drill.damage(data, chance) != data for _ in range(200)) > 190
