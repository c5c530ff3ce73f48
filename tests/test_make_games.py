"""Sets of games: made by TextWorld's generators, listed with hashes, compiled together."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from grue.cli import entry
from grue.games import makers

pytestmark = pytest.mark.filterwarnings("ignore::jericho.UnsupportedGameWarning")


def files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_a_set_is_made_and_compiled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "games"
    line = ["make-games", "custom", "--count", "3", "--seed", "7", "--split", "34,33,33"]
    assert entry.main([*line, "-o", str(out), "--jobs", "2"]) == 0
    assert capsys.readouterr().out == f"{out}: 3 games\n"
    names = [f"{part}/custom-tiny-{7 + i}" for i, part in enumerate(makers.SPLITS)]
    both = [f"{name}{suffix}" for name in names for suffix in (".json", ".z8")]
    assert files(out) == sorted([makers.MANIFEST, *both])
    manifest = json.loads((out / makers.MANIFEST).read_text())
    assert [game["seed"] for game in manifest["games"]] == [7, 8, 9]
    assert manifest["settings"] == "--world-size 3 --nb-objects 6 --quest-length 3"
    for game in manifest["games"]:
        story = out / game["file"]
        assert hashlib.sha256(story.read_bytes()).hexdigest() == game["sha256.z8"]
        data = story.with_suffix(".json").read_bytes()
        assert hashlib.sha256(data).hexdigest() == game["sha256.json"]

    assert entry.main(["compile", str(out)]) == 0
    told = capsys.readouterr().out
    assert told.startswith(f"{out}: 3 games: ")
    assert told.endswith(" 0 refused\n")
    assert len(list(out.rglob("*.grue.npz"))) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["games"]


def test_seeds_that_fail_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def make_one(kind: Any, settings: Any, game: Any, folder: Path, tick: Any) -> str | None:
        if game["seed"] % 2:
            return "ValueError: odd"
        for suffix in (".z8", ".json"):
            (folder / f"{game['seed']}{suffix}").write_text(str(game["seed"]))
        return None

    monkeypatch.setattr(makers, "_make_one", make_one)
    made = makers.make_games("cooking", "gata-4", 4, 10, tmp_path / "set", (50, 25, 25))
    assert [(g["seed"], g["split"]) for g in made.games] == [
        *((10, "train"), (12, "valid"), (14, "train"), (16, "test"))
    ]
    assert [failed["seed"] for failed in made.failed] == [11, 13, 15]
    monkeypatch.setattr(makers, "_make_one", lambda *_: "ValueError: never")
    with pytest.raises(makers.GrueError, match="built only 0 of 2 games from 6 seeds: ValueError"):
        makers.make_games("coin", "3", 2, 0, tmp_path / "none")
    assert not (tmp_path / "none").exists()
    assert files(tmp_path / "set")[0] == makers.MANIFEST


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["chess"], "there is no kind 'chess' of games; there are cooking, custom, simple, coin"),
        (["coin", "--level", "301"], "no level '301' of tw-coin_collector; there are 1 to 150, "),
        (["coin", "--level", "151"], "no level '151' of tw-coin_collector; there are 1 to 150, "),
        (["hunter", "--level", "0"], "no level '0' of tw-treasure_hunter; there are 1 to 30"),
        (["cooking", "--level", "9"], "there is no level '9' of tw-cooking; there are gata-1"),
        (["coin", "--split", "80,20"], "the split 80,20 is not of train, valid and test games"),
        (["coin", "--split", "80,10,10"], "10% of 2 games are none, so there would be"),
        (["coin", "--split", "most"], "--split is 'most'; give whole percents such as 80,10,10"),
    ],
)
def test_bad_input(
    arguments: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert entry.main(["make-games", *arguments, "--count", "2", "-o", str(out)]) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert error.count("\n") == 1
    assert not out.exists()


def test_folders_that_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "note").write_text("mine")
    assert entry.main(["make-games", "coin", "-o", str(tmp_path)]) == 2
    assert "is not an empty folder: give a new one" in capsys.readouterr().err
    assert entry.main(["compile", str(tmp_path)]) == 2
    assert "holds no TextWorld game" in capsys.readouterr().err
    assert entry.main(["compile", str(tmp_path), "-o", "x"]) == 2
    assert files(tmp_path) == ["note"]
