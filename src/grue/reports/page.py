"""A report as one HTML page with embedded pictures and style."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from grue.experiments.conditions import usual_settings
from grue.experiments.records import Record
from grue.experiments.thinning import SOLVED
from grue.reports.claims import Judged
from grue.reports.claims_page import by_subject, missing_words, needs_remark, tally, terms
from grue.reports.picture import DOTS, short_number
from grue.reports.summary import COLUMNS, Named, ResultRow, cells
from grue.training.config import TrainConfig

STYLE = Path(__file__).with_name("page.css").read_text()
SIGNS: dict[str, tuple[str, str]] = {
    "holds": ("yes", "✓"),
    "partly": ("partly", "◐"),
    "does not hold": ("no", "✗"),
    "undecided": ("open", "?"),
    "not yet run": ("open", "·"),
    "not measured": ("open", "·"),
}
"""The CSS class and the sign of each verdict."""
ANSWERS = {"yes": "yes", "no": "no", "undecided": "open"}
NUMERIC = ("steps", "fraction of subtasks", "IQM [95% interval]", "first win", "solved", "score")


@dataclass(frozen=True)
class Picture:
    title: str
    caption: str
    png: bytes

    @property
    def width(self) -> int:
        """In CSS pixels, so that all pictures have the same font size."""
        # Bytes 16 to 20 of a PNG file are its width.
        return round(int.from_bytes(self.png[16:20], "big") * 96 / DOTS)


def page(
    rows: Sequence[ResultRow],
    judged: Sequence[Judged],
    paper: Sequence[Picture],
    more: Sequence[Picture],
    entries: Sequence[Named],
    episodes: Sequence[tuple[str, str]] = (),
) -> str:
    """The whole page. ``episodes`` are names and addresses of exported pages to link to."""
    parts = {
        "Results": _results(rows),
        "The paper's figures": _pictures(paper),
        "Figures": _pictures(more),
        "The paper's claims": _claims(judged),
        "Runs": _runs(entries),
        "Episodes": _episodes(episodes),
    }
    shown = {name: body for name, body in parts.items() if body}
    links = "".join(f'<a href="#{_anchor(name)}">{escape(name)}</a>' for name in shown)
    body = "".join(
        f'<section id="{_anchor(name)}"><h2>{escape(name)}</h2>{inside}</section>\n'
        for name, inside in shown.items()
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>grue: a report</title>\n<style>{STYLE}</style></head>\n"
        f"<body><main><h1>A report of grue</h1><p class=grey>{escape(_lead(rows, entries))}</p>"
        f"<nav>{links}</nav>\n{body}</main></body></html>\n"
    )


def _lead(rows: Sequence[ResultRow], entries: Sequence[Named]) -> str:
    runs = sum(len(entry.record.seeds) for entry in entries)
    conditions = len({entry.label for entry in entries})
    games = list(dict.fromkeys(row.game for row in rows))
    return (
        f"{_many(runs, 'run')} of {_many(conditions, 'condition')} on {_many(len(games), 'game')}: "
        f"{', '.join(games)}."
    )


# Sections


def _results(rows: Sequence[ResultRow]) -> str:
    body = [[_cell(name, text) for name, text in _named_cells(row)] for row in rows]
    note = (
        "The fraction of subtasks done in an episode, in the last window of training: mean ± "
        "standard deviation over the seeds; IQM is the mean of the middle half of them, with its "
        "95% interval (on Zork I, of the scores). The steps to the first win, and until the moving "
        f"average first reached {SOLVED:g}, are medians over the seeds, with how many got there. "
        "The score is that of the last window, too."
    )
    return f"<p class=grey>{escape(note)}</p>" + _table(COLUMNS, body)


def _named_cells(row: ResultRow) -> Iterable[tuple[str, str]]:
    return zip(COLUMNS, cells(row), strict=True)


def _cell(column: str, text: str) -> str:
    kind = "number" if column in NUMERIC else "name"
    return f"<td class={kind}>{escape(text)}</td>"


def _pictures(pictures: Sequence[Picture]) -> str:
    return "".join(
        f"<h3>{escape(picture.title)}</h3><figure><div class=sheet>"
        f'<img alt="{escape(f"{picture.title}. {picture.caption}")}" width={picture.width} '
        f'src="data:image/png;base64,{base64.b64encode(picture.png).decode()}"></div>'
        f"<figcaption>{escape(picture.caption)}</figcaption></figure>\n"
        for picture in pictures
    )


def _claims(judged: Sequence[Judged]) -> str:
    """Empty if no claim is about any of the runs."""
    if not any(one.verdict.run for one in judged):
        return ""
    how = "".join(f"<p>{escape(term)}</p>" for term in terms())
    parts = [
        f"<h3>{escape(subject)}</h3><p>{escape(tally(some))}</p>{''.join(map(_claim, some))}"
        for subject, some in by_subject(judged).items()
    ]
    return _fold("How they are tested", how) + "".join(parts)


def _claim(judged: Judged) -> str:
    claim, verdict = judged.claim, judged.verdict
    kind, sign = SIGNS[verdict.word]
    # "So far" is set in a lighter weight.
    sure = " sofar" * verdict.open
    told = f"<span class='verdict {kind}{sure}'>{sign} {escape(str(verdict))}</span>"
    body = f"<p class=grey>{escape(claim.where)}. Tested: {escape(claim.reading)}.</p>"
    tests = [
        [
            f"<td>{escape(str(test))}</td>",
            f"<td class='{ANSWERS[outcome.answer]}'>{outcome.answer}</td>",
            f"<td>{escape(outcome.numbers)}</td>",
        ]
        for test, outcome in zip(claim.tests, verdict.outcomes, strict=True)
        if outcome.answer is not None
    ]
    if tests:
        body += _table(("test", "passes", "numbers"), tests)
    if claim.remark and needs_remark(verdict):
        body += f"<p>{escape(claim.remark)}</p>"
    if claim.needs:
        body += f"<p class=grey>Not measured: {escape(claim.needs)}.</p>"
    if verdict.missing:
        body += f"<p class=grey>Not yet run: {escape(missing_words(judged))}.</p>"
    return _fold(f"{told} “{escape(claim.sentence)}”", body, is_html=True)


def _runs(entries: Sequence[Named]) -> str:
    note = "Every setting and the origin of every run. Settings in bold differ from the paper's."
    return f"<p class=grey>{escape(note)}</p>" + "".join(map(_run, entries))


def _episodes(episodes: Sequence[tuple[str, str]]) -> str:
    """Links to the pages that ``grue watch --export`` has written into run folders."""
    if not episodes:
        return ""
    links = "".join(
        f'<li><a href="{escape(quote(place))}">{escape(name)}</a></li>' for name, place in episodes
    )
    return f"<p class=grey>Played step by step, with the agent's thoughts.</p><ul>{links}</ul>"


def _run(entry: Named) -> str:
    record = entry.record
    finals = record.final.tolist()
    names = [name for name in _about_names(record) if name != "command"]
    body = [
        [
            f"<td class=number>{seed}</td>",
            f"<td class=number>{escape(short_number(reached))}</td>",
            f"<td class=number>{final:.3f}</td>",
            *(f"<td>{escape(_short(name, about.get(name)))}</td>" for name in names),
        ]
        for seed, reached, final, about in zip(
            record.seeds, record.reached, finals, record.about, strict=True
        )
    ]
    commands = dict.fromkeys(str(about["command"]) for about in record.about if "command" in about)
    told = "".join(f"<p><code>{escape(command)}</code></p>" for command in commands)
    table = _table(("seed", "steps", "fraction", *(n.replace("_", " ") for n in names)), body)
    title = f"{entry.game}: {entry.label}, {_many(len(record.seeds), 'seed')}"
    return _fold(title, told + table + _fold("Settings", _settings(record.config)))


def _about_names(record: Record) -> list[str]:
    """Sorted, with commit and device first."""
    names = {name for about in record.about for name in about}
    return sorted(names, key=lambda name: (name != "commit", name != "device", name))


def _short(name: str, value: Any) -> str:
    if value is None:
        return ""
    # Ten digits are enough to identify a hash.
    return str(value)[:10] if name in ("commit", "game_hash") else str(value)


def _settings(config: TrainConfig) -> str:
    parts, usual = [], usual_settings(config)
    for name, value in sorted(config.flat().items()):
        told = ", ".join(map(str, value)) if isinstance(value, tuple) else _told(value)
        own = " class=own" if value != usual[name] and name != "seeds" else ""
        spoken = escape(name.replace("_", " "))
        parts.append(f"<div{own}><dt>{spoken}</dt><dd>{escape(told)}</dd></div>")
    return f"<dl>{''.join(parts)}</dl>"


def _told(value: Any) -> str:
    if value is None:
        return "set by the game or agent"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


# Pieces of HTML


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The cells are HTML."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(row)}</tr>\n" for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>"
    return f"<div class=scroll>{table}</div>"


def _fold(title: str, body: str, is_html: bool = False) -> str:
    summary = title if is_html else escape(title)
    return f"<details><summary>{summary}</summary><div class=inside>{body}</div></details>\n"


def _anchor(name: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in name.lower())


def _many(count: int, thing: str) -> str:
    return f"{count} {thing}{'s' * (count != 1)}"
