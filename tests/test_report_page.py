"""The page of a report, and the command that writes it."""

from __future__ import annotations

import base64
import io
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from made_records import ABOUT, made_record, rich

import grue
from grue.cli.entry import main
from grue.experiments.records import read_records, write_record
from grue.reports.report import write_report
from grue.training.config import TrainConfig


class Reader(HTMLParser):
    """Checks that tags close, and keeps what can be seen and fetched."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.links: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def pictures(reader: Reader) -> list[np.ndarray]:
    begin = "data:image/png;base64,"
    found = [link.removeprefix(begin) for link in reader.links if link.startswith(begin)]
    return [matplotlib.image.imread(io.BytesIO(base64.b64decode(data))) for data in found]


@pytest.fixture(scope="module")
def made_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("page")
    hostile = {"command": "grue <script>alert(1)</script> & 'x' \"y\"", "commit": "c0ffee" * 6}
    write_record(rich(1, "masking", (0.8, 0.9, 1.0), about=ABOUT | hostile), folder / "data")
    write_record(made_record(1, "drqn", final=(0.1, 0.2), batch_size=64), folder / "data")
    write_record(made_record(3, "sc", "masking", (1.0, 1.0, 1.0)), folder / "data")
    (written,) = write_report([folder / "data"], folder / "out" / "report.html")
    return written.read_text()


def test_page_stands_alone(made_page: str) -> None:
    reader = Reader(made_page)
    assert made_page.startswith("<!doctype html>")
    assert "://" not in made_page
    # One condition at the paper's settings is no comparison: its figures are left out.
    sections = {"#results", "#figures", "#the-paper-s-claims", "#runs"}
    pictured = [link for link in reader.links if link not in sections]
    assert len(pictured) == len(pictures(reader)) == reader.tags["img"]
    assert {link for link in reader.links if link.startswith("#")} == sections
    assert all(f'id="{link[1:]}"' in made_page for link in sections)
    assert not {"script", "link", "iframe"} & set(reader.tags)
    assert all(image.shape[1] > 500 for image in pictures(reader))


def test_page_tells_what_was_run(made_page: str) -> None:
    text = Reader(made_page).text
    assert "8 runs of 2 conditions on 2 games: saladworld-1, saladworld-3." in text
    assert "0.900 ± 0.082 0.900 [0.800, 1.000]" in text
    assert "saladworld-1: sc + masking, 3 seeds" in text
    assert "0 1.3M 0.800 c0ffeec0ff CPU 0.1.0" in text
    # The settings of each, the paper's or not.
    assert made_page.count("<dt>batch size</dt>") == 3
    assert "<div class=own><dt>batch size</dt><dd>64</dd></div>" in made_page
    assert "<div><dt>batch size</dt><dd>32</dd></div>" in made_page
    assert "<div><dt>steps</dt><dd>1,300,000</dd></div>" in made_page
    assert "holds so far, 2 of 3 tests not yet run “With difficult level 3, only" in text
    assert "not yet run “oracle gating simplifies the problem”" in text
    assert "Not yet run: levels 1-2: drqn + oracle, drqn, sc + oracle, sc." in text


def test_page_escapes(made_page: str) -> None:
    assert "<script" not in made_page
    told = "grue &lt;script&gt;alert(1)&lt;/script&gt; &amp; &#x27;x&#x27; &quot;y&quot;"
    assert f"<code>{told}</code>" in made_page


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two real runs."""
    out = tmp_path_factory.mktemp("runs")
    config = TrainConfig(
        game="saladworld-1",
        agent="tabular",
        gate="oracle",
        steps=1200,
        seeds=(0, 1),
        table_rows=64,
        metrics_every=200,
        target_every=200,
        learning_starts=1200,
        average_over=400,
    )
    grue.train(config, out=out)
    return out


def test_runs_and_their_record_give_the_same_page(runs: Path, tmp_path: Path) -> None:
    (record,) = read_records([runs])
    path = write_record(record, tmp_path / "records")
    first = write_report([runs], tmp_path / "runs.html")[0].read_text()
    second = write_report([path], tmp_path / "record.html")[0].read_text()
    assert second.splitlines() == first.splitlines()
    reader = Reader(first)
    assert "2 runs of 1 condition on 1 game: saladworld-1." in reader.text
    mean, deviation = record.final.mean(), record.final.std()
    assert f"{mean:.3f} ± {deviation:.3f}" in reader.text
    assert "claims" not in reader.text  # None is about these runs.
    assert record.first_solve is not None
    won = any(step is not None for step in record.first_solve)
    assert len(pictures(reader)) == 3 + won  # Curves, bars, IQM, and first wins if there are any.


def test_command(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(runs)]) == 0
    page = (tmp_path / "report.html").read_text()
    assert main(["report", str(runs), "-o", "a/b.html", "--figures", "figures"]) == 0
    assert (tmp_path / "a" / "b.html").read_text() == page
    names = {path.stem for path in (tmp_path / "figures").glob("*.png")}
    assert names == {path.stem for path in (tmp_path / "figures").glob("*.json")}
    assert {"curves", "bars", "iqm"} <= names
    assert list(tmp_path.glob("**/.*")) == []


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["nowhere"], 2, "nowhere does not exist: give run folders"),
        (["empty"], 2, "empty holds no record and no run"),
        (["broken"], 1, "broken/record.json cannot be read as JSON"),
        (["data", "-o", "data"], 2, "data is a folder: give the name of a file to write"),
        (["data", "--claims", "file/claims.md"], 1, "cannot write file/claims.md: "),
        ([], 2, "Missing argument"),
    ],
)
def test_bad_input_is_told_in_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    complaint: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "record.json").write_text('{"kind": "grue record", "form')
    write_record(made_record(1, "sc"), tmp_path / "data")
    (tmp_path / "file").write_text("in the way")
    before = sorted(tmp_path.rglob("*"))
    assert main(["report", *arguments]) == code
    error = capsys.readouterr().err
    assert error.startswith("grue: ")
    assert complaint in error
    assert error.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before
