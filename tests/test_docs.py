"""What the pages tell people to type is what there is, and what they tell of runs is in records."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
import watch
from train import of_one_commit

import grue
from grue.cli.app import app
from grue.cli.entry import with_address
from grue.experiments.conditions import BASELINE, SC, Condition
from grue.experiments.records import Record, read_records
from grue.reports.criteria import SPEED
from grue.reports.statistics import Estimate, mean_difference

ROOT = Path(__file__).parents[1]
REMARKS = tomllib.loads((ROOT / "docs" / "claims.toml").read_text())["remarks"]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

LEARNED = ("dropout", "masking", "cqlh")


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def commands() -> list[str]:
    whole = [block.replace("\\\n", " ") for page in PAGES for block in blocks(page, "sh")]
    lines = [line for block in whole for line in block.splitlines()]
    return sorted({line.split("#")[0].strip() for line in lines if line.startswith("grue ")})


def test_there_are_commands_to_check() -> None:
    assert len(commands()) >= 10


@pytest.mark.parametrize("line", commands())
def test_every_command_is_one(line: str) -> None:
    """Parsed with all its options, and not run."""
    command: Any = typer.main.get_command(app)
    words = with_address(shlex.split(line)[1:])
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    command.make_context("grue", words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_are_there(page: Path) -> None:
    folders = "tests|benchmarks|studies|examples|results|docs|src"
    for name in re.findall(rf"(?<![\w./-])(?:{folders})/[\w./-]*\w", page.read_text()):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_uses_names_of_grue(page: Path) -> None:
    for block in blocks(page, "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert node.value.id != "grue" or hasattr(grue, node.attr), node.attr


def test_a_run_is_followed_as_the_page_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = ROOT / "docs" / "training.md"
    (code,) = [block for block in blocks(page, "python") if "class Log" in block]
    monkeypatch.chdir(tmp_path)
    exec(code.replace('agent="tabular"', 'agent="tabular", steps=2000'), {"grue": grue})
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [(step, seed) for step, seed, _ in rows] == [("1000", "0"), ("2000", "0")]
    assert [float(score) >= 0 for _, _, score in rows] == [True, True]


def test_the_citation_is_of_this_version() -> None:
    lines = (ROOT / "CITATION.cff").read_text().splitlines()
    assert f"version: {grue.__version__}" in lines
    assert sum(line.startswith("      - family-names: ") for line in lines) == 5


def test_types_are_for_others_too() -> None:
    assert Path(grue.__file__).with_name("py.typed").is_file()


@cache
def records_of(folder: str) -> list[Record]:
    return read_records([ROOT / "results" / folder])


def record(folder: str, label: str) -> Record:
    (found,) = [one for one in records_of(folder) if one.label == label]
    return found


def test_the_numbers_of_heads_that_die() -> None:
    page = (ROOT / "docs" / "agents.md").read_text()
    variants = {"relu": "relu | false", "elu": "elu | false", "elu-adam-by-head": "elu | true"}
    for folder, settings in variants.items():
        one = record(f"activation/{folder}", "sc")
        made = f"{one.config.activation} | {str(one.config.adam_by_head).lower()}"
        assert made == settings
        assert f"| {settings} | {' | '.join(f'{end:.3f}' for end in one.final)} |" in page
    for label in ("drqn", "sc", "sc + masking"):
        old, new = (record(f"{folder}/saladworld-3", label) for folder in ("relu", "saladworld"))
        told = [f"{one.final.mean():.3f} ± {one.final.std():.3f}" for one in (old, new)]
        assert f"| {label} | {' | '.join(told)} |" in page
        assert [one.config.activation for one in (old, new)] == ["relu", "elu"]


def test_the_numbers_of_targets_with_the_oracle() -> None:
    page = " ".join((ROOT / "docs" / "agents.md").read_text().split())
    cases = ((1, "tabular + oracle"), (3, "li-tabular + oracle"))
    all_, admissible = (
        [record(f"{place}/saladworld-{level}", label) for level, label in cases]
        for place in ("oracle-in-targets/false", "saladworld")
    )
    assert [one.config.oracle_in_targets for one in all_ + admissible] == [False] * 2 + [True] * 2
    before, after = ([f"{one.final.mean():.3f}" for one in some] for some in (all_, admissible))
    assert f"ended at {before[0]} on level 1 and li-tabular at {before[1]} on level 3" in page
    assert f"they end at {after[0]} and {after[1]} (five seeds" in page


def solved(label: str, level: int = 3, runs: int = 5) -> str:
    """After how many steps a level is solved, in words; so many of five runs must solve it."""
    steps = record(f"saladworld/saladworld-{level}", label).solved
    assert steps is not None
    least, *_, most = found = sorted(step for step in steps if step is not None)
    assert (len(found), len(steps)) == (runs, 5)
    return f"after {least:,} to {most:,}"


def results_row(label: str) -> str:
    """A condition on levels 1 to 4, as a row of the table in README.md."""
    cells = []
    for level in (1, 2, 3):
        records = records_of(f"saladworld/saladworld-{level}")
        steps = [step for one in records if one.label == label for step in one.solved or ()]
        found = sorted(step for step in steps if step is not None)
        assert len(steps) in (0, 5)
        ends = " to ".join(dict.fromkeys(f"{step:,}" for step in found[:1] + found[-1:]))
        cells.append(", ".join(filter(None, (f"{len(found)} of 5", ends))) if steps else "not run")
    for level in (3, 4):
        final = record(f"saladworld/saladworld-{level}", label).final
        cells.append(f"{final.mean():.3f} ± {final.std():.3f}")
    return f"| {label} | {' | '.join(cells)} |"


def test_the_table_of_results() -> None:
    page = (ROOT / "README.md").read_text()
    rows = [line for line in page.splitlines() if re.match(r"\| (drqn|sc)\b", line)]
    labels = [row.split("|")[1].strip() for row in rows]
    gates = ("", *(f" + {gate}" for gate in ("dropout", "masking", "cqlh", "oracle")))
    assert labels == [f"{agent}{gate}" for agent in ("drqn", "sc") for gate in gates]
    assert rows == [results_row(label) for label in labels]
    learned = [record("saladworld/saladworld-3", f"drqn + {gate}").solved for gate in LEARNED]
    steps = [step for some in learned for step in some or ()]
    found = sum(step is not None for step in steps)
    assert f"{found} of its {len(steps)} runs with a learned gate" in " ".join(page.split())
    level_2 = {gate: record("saladworld/saladworld-2", f"drqn + {gate}").solved for gate in LEARNED}
    counts = {gate: sum(step is not None for step in of or ()) for gate, of in level_2.items()}
    assert counts == {"dropout": 0, "masking": 2, "cqlh": 5}
    assert (
        "On level 2 all five of its runs with cqlh solve the level, two with masking"
        in " ".join(page.split())
    )
    ends = {label: row.split("|")[-2].split()[0] for label, row in zip(labels, rows, strict=True)}
    gated = [ends[f"drqn + {gate}"] for gate in ("dropout", "masking", "cqlh")]
    told = f"{ends['drqn']} to {gated[0]} (dropout), {gated[1]} (masking) and {gated[2]} (cqlh)"
    assert told in " ".join(page.split())


def test_the_scores_on_zork() -> None:
    page = (ROOT / "docs" / "zork.md").read_text()
    rows = re.findall(r"^\| (drqn|sc \+ masking|sc|ae-dqn)\b[^|]*\|(.*)\|$", page, re.MULTILINE)
    assert len(rows) == 4
    for label, cells in rows:
        scores = record("zork/zork1", label).columns["score_average"][:, -1]
        assert [cell.strip() for cell in cells.split("|")] == [f"{score:.1f}" for score in scores]
    readme = " ".join((ROOT / "README.md").read_text().split())
    words = {"ae-dqn": "look and inventory, ", "sc": "`sc`, which is not, "}
    for label, _ in rows:
        scores = record("zork/zork1", label).columns["score_average"][:, -1]
        told = "{:.1f}, {:.1f} and {:.1f}".format(*scores)
        assert words.get(label, f"`{label}` ") + told in readme


def lead(level: int, ours: str, theirs: str = "drqn") -> Estimate:
    """How far one condition is above another over all of training."""
    place = f"saladworld/saladworld-{level}"
    return mean_difference([SPEED.of(record(place, ours))], [SPEED.of(record(place, theirs))])


@pytest.mark.parametrize("level", [1, 3])
def test_sc_and_learned_gates_are_faster_than_the_baseline(level: int) -> None:
    for ours in (SC, *(Condition("drqn", gate) for gate in LEARNED)):
        assert lead(level, ours.label).low > 0


def test_the_note_on_level_1() -> None:
    records = records_of("saladworld/saladworld-1")
    deep = [Condition.of(one.config) for one in records if one.config.agent in ("drqn", "sc")]
    others = [condition for condition in deep if condition != BASELINE]
    assert len(others) == 9
    for ours in others:  # The baseline with all commands is the slowest of all.
        assert lead(1, ours.label).low > 0
    assert f"with all commands, {solved('drqn', 1)} steps" in REMARKS["level-1"]
    assert f"sc solves the level {solved('sc', 1)} steps" in REMARKS["level-1"]
    assert f"sc with masking {solved('sc + masking', 1)}" in REMARKS["level-1"]
    assert f"the baseline with the oracle {solved('drqn + oracle', 1)}" in REMARKS["level-1"]


def small_runs(name: str) -> dict[str, Any]:
    return json.loads((ROOT / "results" / name / f"{name}.json").read_text())


@pytest.mark.parametrize("name", ["baseline", "drrn", "heads", "rare", "silent", "sweep"])
def test_small_runs_are_told_with_their_command_and_table(name: str) -> None:
    page = (ROOT / "docs" / "agents.md").read_text()
    assert f"`{small_runs(name)['command']}`" in page
    assert (ROOT / "results" / name / "table.md").read_text() in page


def test_the_curves_of_ppo_are_told() -> None:
    page = (ROOT / "docs" / "ppo.md").read_text()
    folder = ROOT / "results" / "ppo"
    assert (folder / "table.md").read_text() in page
    for path in folder.glob("*.json"):
        made = json.loads(path.read_text())
        assert made["command"].startswith(f"python examples/ppo.py --game {made['config']['game']}")
        assert made["about"]["changed_tree"] is False


def test_the_small_runs_of_the_baseline() -> None:
    page = (ROOT / "docs" / "agents.md").read_text()
    made = small_runs("baseline")
    never = {}
    for steps in (20_000, 40_000, 80_000):
        for agent in ("drqn", "sc"):
            rows = [r for r in made["rows"] if (r["agent"], r["steps"]) == (agent, steps)]
            final = sum(row["final_fraction"] for row in rows) / len(rows)
            assert f"| {steps:,} | {agent} | {final:.3f} | " in page
            never[steps, agent] = [row["solved_at"] for row in rows].count(None)
    # Sc alone in 40,000 steps, one of two runs of the baseline too in twice as many.
    assert [never[steps, "drqn"] for steps in (40_000, 80_000)] == [2, 1]
    assert [never[steps, "sc"] for steps in (40_000, 80_000)] == [0, 0]
    steps, sooner = (solved(agent, 1).removeprefix("after ") for agent in ("drqn", "sc"))
    assert f"{steps} of 1.3 million steps, sc's after {sooner}" in " ".join(page.split())


def test_what_the_paper_leaves_open() -> None:
    made = small_runs("silent")
    solved: dict[tuple[str, int], dict[str, int]] = {("sc", 80_000): {}, ("drqn", 80_000): {}}
    for row in made["rows"]:
        counts = solved.setdefault((row["agent"], row["steps"]), {})
        counts[str(row["change"])] = counts.get(str(row["change"]), 0) + (
            row["solved_at"] is not None
        )
    assert set(solved["sc", 80_000].values()) == {2}
    assert len(solved["drqn", 80_000]) == 10
    assert list(solved["drqn", 80_000].values()).count(0) == 7
    assert max(solved["drqn", 80_000].values()) == 1
    assert list(solved["drqn", 320_000].values()) == [2, 2, 2]


def test_rare_wins_at_the_small_preset() -> None:
    made = small_runs("rare")
    assert len(made["rows"]) == 9
    for row in made["rows"]:
        masking = row["change"] == {"gate": "masking"}
        assert (row["solved_at"] is not None) == masking
        assert (row["wins"] > 1_000) if masking else (row["wins"] <= 2)


def test_the_note_on_level_2() -> None:
    assert (
        f"three of five runs of sc solve it, {solved('sc', 2, runs=3)} steps" in REMARKS["level-2"]
    )
    assert f"every run of sc solves it, {solved('sc + masking', 2)} steps" in REMARKS["level-2"]
    ours, theirs = (record("saladworld/saladworld-2", label) for label in ("sc", "drqn"))
    assert ours.solved is not None
    wins, theirs_by_chance = (one.columns["wins"].sum(1).astype(int) for one in (ours, theirs))
    few = sorted(int(n) for n, step in zip(wins, ours.solved, strict=True) if step is None)
    assert f"met {few[0]} and {few[1]} wins by chance" in REMARKS["level-2"]
    assert f"each met {theirs_by_chance.min()} to {theirs_by_chance.max()}." in REMARKS["level-2"]
    unsolved = [end for end, step in zip(ours.final, ours.solved, strict=True) if step is None]
    assert unsolved == [0.6667, 0.6667]
    assert theirs.solved == (None,) * 5
    assert np.nanmax(theirs.columns["fraction_average"]) < 0.68


def test_the_note_on_gates_on_level_3() -> None:
    assert f"sc solves level 3 {solved('sc + masking')} steps" in REMARKS["gates-on-level-3"]
    assert (
        f"dropout it does so too, {solved('sc + dropout')}, though" in REMARKS["gates-on-level-3"]
    )
    assert f"four runs do, {solved('sc + cqlh', runs=4)}, and one" in REMARKS["gates-on-level-3"]
    below = [
        [
            float(end)
            for end in record("saladworld/saladworld-3", f"sc + {gate}").final
            if end < 0.95
        ]
        for gate in ("masking", "dropout", "cqlh")
    ]
    assert below == [[], [0.8994], [0.67]]


def test_the_remarks_on_small_leads() -> None:
    """A lead over all of training that is sure, and less than what counts."""
    told = REMARKS["gates-on-level-3"]
    dropout, cqlh = (lead(3, "sc + masking", f"sc + {gate}") for gate in ("dropout", "cqlh"))
    assert f"leads dropout by {dropout.value:.3f}, a little less than the {SPEED.near:g}" in told
    assert f"and cqlh by {cqlh.value:.3f}." in told
    sc = [lead(level, "sc") for level in (1, 3)]
    told = f"by {sc[0].value:.3f} and {sc[1].value:.3f}. That is less than the {SPEED.near:g} that"
    assert told in REMARKS["faster-by-little"]
    both = [lead(level, "sc + oracle", "sc + masking") for level in (1, 3)]
    told = f"by {both[0].value:.3f} on level 1 and by {both[1].value:.3f} on level 3. That is less"
    assert told in REMARKS["oracle-faster"]
    told = f"{solved('sc + masking', 1)} and {solved('sc + masking', 3)} of 1.3 million steps"
    assert told in REMARKS["oracle-faster"]
    first = [lead(1, f"{agent} + oracle", agent) for agent in ("drqn", "sc")]
    told = f"the baseline faster by {first[0].value:.3f} and sc by {first[1].value:.3f}. That is"
    assert told in REMARKS["oracle-on-level-1"]
    for agent in ("drqn", "sc"):
        solved(agent, 1)  # In all five runs, or this fails.
    small = [dropout, *sc, *both, *first]
    assert all(one.low > 0 and one.value < SPEED.near for one in small)


def test_the_remark_on_the_seeds_of_zork() -> None:
    sc, masking = (record("zork", label).last("score_average") for label in ("sc", "sc + masking"))
    none, *learned = sorted(sc)
    assert none < 1
    told = f"sc learns in two, to {learned[0]:.0f} and {learned[1]:.0f} points"
    assert f"{told}, and sc with masking in one, to {max(masking):.0f}:" in REMARKS["zork-seeds"]
    assert sorted(masking)[1] < 10


def test_every_remark_with_a_number_is_tested() -> None:
    told = (ROOT / "tests" / "test_docs.py").read_text()
    numbers = [name for name, text in REMARKS.items() if re.search(r"\d,\d|\d\.\d|\d\d", text)]
    assert len(numbers) == 8
    assert all(f'REMARKS["{name}"]' in told for name in numbers)


def luck_row(level: int, label: str, steps: int = 200_000) -> str:
    """How a condition met its first wins, as a row of the table in docs/agents.md."""
    one = record(f"saladworld/saladworld-{level}", label)
    assert one.solved is not None
    early = one.steps <= steps
    wins = ", ".join(f"{n:.0f}" for n in one.columns["wins"][:, early].sum(1))
    found = sorted(step for step in one.solved if step is not None)
    after = f"{found[0]:,} to {found[-1]:,}" if found else "never"
    candidates = one.columns["candidates"][:, early].mean()
    return f"| {level} | {label} | {candidates:.1f} | {wins} | {len(found)} | {after} |"


def test_the_numbers_of_first_wins() -> None:
    page = (ROOT / "docs" / "agents.md").read_text()
    rows = [line for line in page.splitlines() if re.match(r"\| [23] \| (drqn|sc)\b", line)]
    told = [(int(cells[1]), cells[2].strip()) for cells in (row.split("|") for row in rows)]
    assert len(told) == 9
    assert rows == [luck_row(level, label) for level, label in told]


def test_the_note_on_level_3() -> None:
    assert (
        f"sc {solved('sc + oracle')} steps and the baseline {solved('drqn + oracle')}"
        in (REMARKS["level-3"])
    )
    ours, theirs = (record("saladworld/saladworld-3", label) for label in ("sc", "drqn"))
    assert ours.first_solve == (None,) * 5
    wins = theirs.columns["wins"].sum(1)
    assert f"met a win by chance, {wins.min():.0f} to {wins.max():.0f} in all" in REMARKS["level-3"]
    assert theirs.solved == (None,) * 5


def bench(name: str) -> dict[str, Any]:
    return json.loads((ROOT / "results" / "bench" / f"{name}.json").read_text())


def test_the_speed_of_training() -> None:
    page = (ROOT / "docs" / "speed.md").read_text()
    text = " ".join(page.split())
    devices = [bench(name) for name in ("train-cpu", "train-h200")]
    names = ("agent", "game", "runs", "ms_per_update", "steps_per_s", "gflop_per_update")
    for device in devices:
        for row in device["rows"]:
            cells = [
                row[name] if isinstance(row[name], str) else f"{row[name]:,}" for name in names
            ]
            assert f"| {device['device']} | {' | '.join(cells)} |" in page
    (fifty,) = [r for r in devices[1]["rows"] if (r["game"], r["runs"]) == ("saladworld-3", 50)]
    told = f"{fifty['steps_per_s']:,.0f}"
    assert f"train at {told} steps a second" in " ".join((ROOT / "README.md").read_text().split())
    twenty = bench("twenty-runs")
    assert f"took {twenty['minutes']:.1f} minutes" in text
    assert f"at {twenty['steps_per_s']:,} steps a second" in text


def test_the_picture_of_training_is_of_one_commit() -> None:
    text = " ".join((ROOT / "docs" / "speed.md").read_text().split())
    rows = bench("train-h200")["rows"]
    runs = of_one_commit([row for row in rows if row["game"] == "saladworld-3"])
    levels = of_one_commit([row for row in rows if row["runs"] == 50])
    (commit,) = {row["commit"][:7] for row in (*runs, *levels)}
    assert f"All points are of one commit, {commit}." in text
    assert sorted(row["runs"] for row in runs) == [1, 5, 20, 50]
    assert sorted(int(row["game"][-1]) for row in levels) == [1, 2, 3, 4, 5, 6, 7]


def test_the_speed_of_the_page() -> None:
    """What docs/watch.md says is what was measured."""
    measured = bench("watch-cpu")
    assert watch.table(measured) in (ROOT / "docs" / "watch.md").read_text()
    assert not measured["changed_tree"]
    assert set(measured["times"]) == set(watch.BARS)
    times = measured["times"]
    late = [name for name, (_, bar) in watch.BARS.items() if times[name]["p95_ms"] > bar]
    # The page tells of this one.
    assert late in ([], ["move"])


def test_a_run_in_a_batch_is_the_run_alone_on_a_gpu() -> None:
    text = " ".join((ROOT / "docs" / "speed.md").read_text().split())
    both = bench("train-h200")["batch_against_alone"]
    assert [one["precision"] for one in both] == ["auto", "float32"]
    assert {one["same_play_until_step"] for one in both} == {4_000}
    apart = [[d for d in one["relative_difference_of_q_loss"] if d is not None] for one in both]
    assert apart[0][0] < 9e-5
    assert apart[1][0] < 1.3e-4
    assert "agreed to 9e-5 (float32: 1.3e-4)" in text
    assert max(apart[0]) < 1 / 6
    assert max(apart[1]) < 1 / 5
    assert "by up to a sixth (float32: a fifth)" in text


def history() -> list[str]:
    """The commits of this checkout."""
    if not (ROOT / ".git").exists():
        pytest.skip("these files are not a git checkout, so there is no history to look in")
    git = ["git", "-C", str(ROOT)]
    try:
        shallow = subprocess.check_output([*git, "rev-parse", "--is-shallow-repository"], text=True)
        if shallow.strip() == "true":
            pytest.skip("a shallow clone does not have the whole history")
        return subprocess.check_output([*git, "rev-list", "HEAD"], text=True).split()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"git cannot tell the history: {error}")


def combined_commits() -> list[str]:
    """Those that docs/reproduce.md lists as not in the history any more."""
    section = (ROOT / "docs" / "reproduce.md").read_text().split("\n## Commits\n")[1]
    return re.findall(r"\b[0-9a-f]{7}(?=[,.])", section.split("one by\none:")[1].split("\n## ")[0])


def named_commits() -> dict[str, str]:
    """Each commit that a result or a page names, and a file that names it."""
    named = {}
    for path in sorted((ROOT / "results").rglob("*.json")):
        for commit in re.findall(r'"commit": *"([^"]*)"', path.read_text()):
            named[commit] = str(path.relative_to(ROOT))
    for page in PAGES:
        for word in re.findall(r"\b[0-9a-f]{7,40}\b", page.read_text()):
            if re.search("[a-f]", word) and re.search("[0-9]", word):
                named[word] = str(page.relative_to(ROOT))
    return named


def test_commits_that_are_named_are_in_the_history_or_listed() -> None:
    known, combined, named = history(), combined_commits(), named_commits()
    assert len(named) > 20
    assert combined
    assert not [c for c in combined if any(one.startswith(c) for one in known)]
    lost = {
        commit: path
        for commit, path in named.items()
        if not commit.startswith(tuple(combined))
        if not any(one.startswith(commit) for one in known)
    }
    assert lost == {}, "not in the history, nor listed under Commits in docs/reproduce.md"
