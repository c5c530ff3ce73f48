"""On a real Ray cluster of three nodes on this machine: the same runs, whatever is killed."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from small_runs import same_results

from grue.cli import entry
from grue.errors import GrueError, UsageError
from grue.experiments import on_ray, ray_cluster
from grue.experiments.status import read_status

ray = pytest.importorskip("ray", reason="the extra ray is not installed")

SETTINGS = {"episode_steps": 45, "table_rows": 4096, "metrics_every": 500, "average_over": 2000}
LONG = 1_200_000
NAMES = [f"saladworld-1-tabular-none-seed{seed}" for seed in range(3)]


def train(out: Path, steps: int, *more: str) -> list[str]:
    """Tabular agents: their program compiles in seconds."""
    settings = {**SETTINGS, "learning_starts": steps}
    given = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    start = ["train", "saladworld-1", "--preset", "paper", "--steps", str(steps)]
    return [*start, "--out", str(out), *given, *more]


class Nodes(NamedTuple):
    cluster: Any
    nodes: list[Any]

    @property
    def address(self) -> str:
        return self.cluster.address


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
    )
    found = Nodes(cluster, [cluster.add_node(num_cpus=1) for _ in range(3)])
    yield found
    ray.shutdown()
    cluster.shutdown()


def until(true: Callable[[], Any], seconds: float = 90.0) -> Any:
    limit = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < limit, "it did not happen in time"
        time.sleep(0.1)
    return found


def rows(run: Path) -> int:
    path = run / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


# The same as on one machine


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of both studies, trained in this process without Ray."""
    out = tmp_path_factory.mktemp("alone")
    sweep = ("--agents", "tabular,li-tabular", "--gates", "none,oracle", "--seeds", "0-2")
    assert entry.main(train(out / "sweep", 2_000, *sweep)) == 0
    assert entry.main(train(out / "long", LONG, "--agent", "tabular", "--seeds", "0-2")) == 0
    return out


def test_a_sweep_on_three_nodes_equals_one_machine(
    nodes: Nodes, alone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = ("--agents", "tabular,li-tabular", "--gates", "none,oracle", "--seeds", "0-2")
    assert entry.main(train(tmp_path, 2_000, *sweep, "--ray", nodes.address)) == 0
    told = capsys.readouterr()
    runs = sorted(path.name for path in (alone / "sweep").iterdir())
    assert len(runs) == 12
    for name in runs:
        same_results(tmp_path / name, alone / "sweep" / name)
        assert told.out.count(str(tmp_path / name)) == 1
        assert told.err.count(f"{name}: 2000 steps") == 1
    values = read_status(tmp_path)
    assert values is not None
    assert values["state"] == "done"
    assert len(values["groups"]) >= 3
    assert {group["state"] for group in values["groups"]} == {"done"}
    assert sorted(name for group in values["groups"] for name in group["runs"]) == runs
    # The same command again has nothing to do.
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("metrics.jsonl")}
    assert entry.main(train(tmp_path, 2_000, *sweep, "--ray", nodes.address, "--resume")) == 0
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("metrics.jsonl")} == before
    capsys.readouterr()
    assert entry.main(["status", str(tmp_path)]) == 0
    assert "12 runs have begun, 12 are done; the study is done" in capsys.readouterr().out
    _evaluates_alike(nodes, tmp_path, capsys)


def _evaluates_alike(nodes: Nodes, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["eval", str(out / NAMES[0]), "--greedy", "--json"]
    assert entry.main(command) == 0
    here = json.loads(capsys.readouterr().out)
    assert entry.main([*command, "--ray", nodes.address]) == 0
    assert json.loads(capsys.readouterr().out) == here


# Whatever is killed


class Faults(NamedTuple):
    out: Path
    status: str
    """What ``grue status`` printed after the driver was killed."""
    code: int
    said: str
    """Of the command that joined the study again."""
    values: dict[str, Any]


def start(arguments: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "grue.cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def actors(nodes: Nodes) -> list[int]:
    """The processes of the cluster that have started a worker."""
    raylets = {node.all_processes["raylet"][0].process.pid for node in nodes.nodes}
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            parent = int((path.parent / "stat").read_text().rpartition(")")[2].split()[1])
            if parent in raylets and path.read_bytes().startswith(b"ray::Runner"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


@pytest.fixture(scope="module")
def faults(nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> Faults:
    """The driver, then a worker, then a node are killed while three runs are in the middle."""
    out = tmp_path_factory.mktemp("faults")
    more = ("--agent", "tabular", "--seeds", "0-2", "--checkpoint-seconds", "0.5")
    command = train(out, LONG, *more, "--ray", nodes.address)
    driver = start(command)
    until(lambda: all(list((out / name / "checkpoint").glob("*.npz")) for name in NAMES))
    driver.kill()
    driver.communicate()
    reached = [rows(out / name) for name in NAMES]
    until(lambda: all(rows(out / n) > r for n, r in zip(NAMES, reached, strict=True)))
    with redirect_stdout(io.StringIO()) as told:
        assert entry.main(["status", str(out)]) == 0
    os.kill(actors(nodes)[0], signal.SIGKILL)
    time.sleep(0.5)
    nodes.cluster.remove_node(nodes.nodes.pop(), allow_graceful=False)
    assert min(rows(out / name) for name in NAMES) < LONG // 500
    driver = start(command)
    said, _ = driver.communicate(timeout=120)
    values = read_status(out)
    assert values is not None
    return Faults(out, told.getvalue(), driver.returncode, said, values)


def test_the_study_goes_on_without_its_driver_and_is_joined_again(faults: Faults) -> None:
    assert "led by process" in faults.status
    assert "3 runs have begun" in faults.status
    assert faults.code == 0, faults.said
    assert "a study is running in this folder: joined it" in faults.said


def test_a_killed_worker_and_a_lost_node_lose_nothing(faults: Faults, alone: Path) -> None:
    for name in NAMES:
        same_results(faults.out / name, alone / "long" / name)


def test_nothing_is_run_twice(faults: Faults) -> None:
    lines = faults.values["lines"]
    for name in NAMES:
        assert sum(line.startswith(f"{name}: {LONG} steps") for line in lines) == 1
    assert sum("goes on from its checkpoints" in line for line in lines) >= 2
    assert any("its worker was killed" in line for line in lines)
    assert any("its node was lost" in line for line in lines)
    groups = faults.values["groups"]
    assert [group["state"] for group in groups] == ["done"] * len(groups)
    assert faults.values["failures"] == []


def test_ctrl_c_writes_checkpoints_and_ends_the_study(nodes: Nodes, tmp_path: Path) -> None:
    command = train(tmp_path, 4_000_000, "--agent", "tabular", "--ray", nodes.address)
    driver = start(command)
    run = tmp_path / NAMES[0]
    until(lambda: rows(run) > 2)
    driver.send_signal(signal.SIGINT)
    said, _ = driver.communicate(timeout=60)
    assert driver.returncode == 130, said
    assert said.splitlines()[-1] == "grue: interrupted; the same command with --resume goes on"
    (saved,) = (run / "checkpoint").iterdir()
    assert saved.name == f"step-{500 * rows(run):09}.npz"
    values = read_status(tmp_path)
    assert values is not None
    assert values["state"] == "stopped"


# What is wrong, in a line


def test_a_wrong_address(nodes: Nodes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ray.shutdown()
    command = train(tmp_path / "out", 1_000, "--agent", "tabular", "--ray", "127.0.0.1:1")
    assert entry.main(command) == 2
    told = capsys.readouterr().err.strip().splitlines()[-1]
    assert told.startswith("grue: no Ray cluster answers at 127.0.0.1:1; give auto, or HOST:PORT")
    assert not (tmp_path / "out").exists()
    for address in ("nowhere", "ray://127.0.0.1:1", "saladworld-1"):
        with pytest.raises(UsageError, match=f"no Ray cluster answers at {address}; give auto"):
            ray_cluster.connect(address)


def test_another_version_of_ray(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    ray.shutdown()
    monkeypatch.setattr(ray, "__version__", "1.0.0")
    with pytest.raises(GrueError, match="Version mismatch") as raised:
        ray_cluster.connect(nodes.address)
    assert "\n" not in str(raised.value)
    assert "install the same versions on all machines" in str(raised.value)


def test_nodes_are_examined(nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray.shutdown()
    ray_cluster.connect(nodes.address)
    ray_cluster.check_nodes(tmp_path, [str(tmp_path)])
    lacking = str(tmp_path / "zork1.z5")
    with pytest.raises(GrueError, match=f"the file {lacking} is missing on the node .*; copy it"):
        ray_cluster.check_nodes(tmp_path, [lacking])
    with pytest.raises(UsageError, match="no node has 5 cores for a group"):
        on_ray.OnRay({}, cores=5).check_room()
    with pytest.raises(UsageError, match="no node of the cluster has a GPU"):
        ray_cluster.shares(None, 0.5)
    ours = {**ray_cluster.versions(), "jax": "0.0.1"}
    monkeypatch.setattr(ray_cluster, "versions", lambda: ours)
    with pytest.raises(GrueError, match=r"has jax .*, this machine has 0.0.1; install the same"):
        ray_cluster.check_nodes(tmp_path, [])
    assert list(tmp_path.iterdir()) == []


def test_storage_that_is_no_file_system(capsys: pytest.CaptureFixture[str]) -> None:
    command = train(Path("s3://bucket/runs"), 1_000, "--agent", "tabular", "--ray", "auto")
    assert entry.main(command) == 2
    told = capsys.readouterr().err.strip()
    assert told.startswith("grue: --out is a folder of a file system")
    assert told.count("\n") == 0
