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
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import pytest
from small_runs import Watcher, same_results

from grue.cli import entry
from grue.errors import GrueError, UsageError
from grue.experiments import on_ray, ray_cluster, study
from grue.experiments.conductor import StudyOutcome
from grue.experiments.status import StatusFile, read_status
from grue.experiments.tasks import PlannedRun, Task
from grue.experiments.worker_process import order_of
from grue.training.checkpoint import saved_steps
from grue.training.config import TrainConfig

ray = pytest.importorskip("ray", reason="the extra ray is not installed")

SETTINGS = {"episode_steps": 45, "table_rows": 4096, "metrics_every": 500, "average_over": 2000}
LONG = 240_000
NAMES = [f"saladworld-1-tabular-none-seed{seed}" for seed in range(3)]
PATIENCE = 300.0
"""Seconds; a machine that is busy with other tests starts processes slowly."""


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


def until(true: Callable[[], Any], seconds: float = PATIENCE) -> Any:
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


def test_a_cluster_on_this_machine_for_one_command(tmp_path: Path) -> None:
    """Without an address; the records are those of the same command without Ray."""
    command = ["reproduce", "oracle", "--levels", "1", "--conditions", "tabular+oracle"]
    command += ["--no-draw", "--out"]
    driver = start([*command, str(tmp_path / "ray"), "--ray"])
    assert entry.main([*command, str(tmp_path / "alone")]) == 0
    said, _ = driver.communicate(timeout=PATIENCE)
    assert driver.returncode == 0, said
    runs = sorted((tmp_path / "alone" / "runs").iterdir())
    assert runs
    for run in runs:
        same_results(tmp_path / "ray" / "runs" / run.name, run)
    (record,) = (tmp_path / "ray" / "records").rglob("*.json")
    assert record.name == "tabular-oracle.json"
    values = read_status(tmp_path / "ray")
    assert values is not None
    assert (values["where"], values["state"]) == ("ray", "done")


# Whatever is killed


class Faults(NamedTuple):
    out: Path
    status: str
    """What ``grue status`` printed after the driver was killed."""
    code: int
    said: str
    """Of the command that joined the study again."""
    values: dict[str, Any]


def start(
    arguments: list[str], out: IO[str] | int = subprocess.PIPE, **variables: str
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "grue.cli", *arguments],
        stdout=out,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **variables},
    )


def children(parents: set[int], word: bytes) -> list[int]:
    """Processes that one of these has started, with a word in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            parent = int((path.parent / "stat").read_text().rpartition(")")[2].split()[1])
            if parent in parents and word in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def actors(nodes: list[Any]) -> list[int]:
    """The processes of these nodes that have started a worker."""
    return children({node.all_processes["raylet"][0].process.pid for node in nodes}, b"ray::Runner")


def workers(nodes: list[Any]) -> list[int]:
    return children(set(actors(nodes)), b"grue.experiments.worker")


def alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def opened(pid: int) -> set[str]:
    """The files and folders that a process has open."""
    with suppress(OSError):
        return {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()}
    return set()


class Held:
    """Workers that stand still, so that no run ends too early, however fast or busy the machine."""

    def __init__(self, nodes: list[Any], out: Path) -> None:
        self.nodes, self.out = list(nodes), out
        self.pids: list[int] = []

    def hold(self, when: Callable[[Path], Any]) -> None:
        """Stops each worker once something is true of its run, and waits for all of them."""
        until(lambda: len(self._stop(when)) == len(NAMES))

    def _stop(self, when: Callable[[Path], Any]) -> list[int]:
        for pid in set(workers(self.nodes)) - set(self.pids):
            folders = [self.out / name for name in NAMES if str(self.out / name) in opened(pid)]
            if folders and when(folders[0]):
                os.kill(pid, signal.SIGSTOP)
                self.pids.append(pid)
        return self.pids

    def release(self, pids: list[int]) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):  # It went with its node.
                os.kill(pid, signal.SIGCONT)
        self.pids = [pid for pid in self.pids if pid not in pids]


@pytest.fixture(scope="module")
def faults(nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faults]:
    """The driver, the lead, a worker and a node are killed while three runs are in the middle."""
    out = tmp_path_factory.mktemp("faults")
    more = ("--agent", "tabular", "--seeds", "0-2", "--checkpoint-seconds", "0.1")
    held = Held(nodes.nodes, out)
    try:
        yield struck(nodes, out, train(out, LONG, *more, "--ray", nodes.address), held)
    finally:
        held.release(held.pids)


def struck(nodes: Nodes, out: Path, command: list[str], held: Held) -> Faults:
    def is_said(text: str) -> bool:
        return any(text in line for line in (read_status(out) or {"lines": []})["lines"])

    driver = start(command)
    held.hold(lambda run: list((run / "checkpoint").glob("*.npz")))
    driver.kill()
    driver.communicate()
    reached = {name: rows(out / name) for name in NAMES}
    held.release(held.pids)
    held.hold(lambda run: rows(run) > reached[run.name])
    with redirect_stdout(io.StringIO()) as told:
        assert entry.main(["status", str(out)]) == 0
    # The process that leads the study: nobody is left who knows of it but the cluster.
    (lead,) = children({nodes.cluster.head_node.all_processes["raylet"][0].process.pid}, b"::Lead")
    starters, before = actors(nodes.nodes), held.pids
    os.kill(lead, signal.SIGKILL)
    until(lambda: not any(map(alive, starters)))
    held.release(before)  # Their starters are gone: they write a checkpoint and end.
    until(lambda: is_said("the process that led the study was lost"))
    until(lambda: not any(map(alive, before)))
    held.hold(lambda run: True)
    # A worker of one node, then another node with all that runs on it. The third run is held.
    lost, other = nodes.nodes.pop(), nodes.nodes[0]
    (actor,), orphans = actors([other]), workers([other])
    os.kill(actor, signal.SIGKILL)
    until(lambda: not alive(actor))
    held.release(orphans)
    until(lambda: is_said("its worker was killed"))
    (actor,), orphans = actors([lost]), workers([lost])
    nodes.cluster.remove_node(lost, allow_graceful=False)
    until(lambda: not alive(actor))
    held.release(orphans)
    until(lambda: is_said("its node was lost"))
    with (out.parent / f"{out.name}-said").open("w+") as said:
        driver = start(command, said)
        until(lambda: "joined it" in Path(said.name).read_text() or driver.poll() is not None)
        held.release(held.pids)
        driver.wait(PATIENCE)
        values = read_status(out)
        assert values is not None
        return Faults(out, told.getvalue(), driver.returncode, Path(said.name).read_text(), values)


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


def test_an_answer_that_is_lost_is_given_again(tmp_path: Path) -> None:
    """What a worker says is kept until the one who asks has heard it."""
    gone = str(tmp_path / "gone.z8")
    run = PlannedRun("gone", TrainConfig(agent="tabular").to_json() | {"game": gone})
    options = {"kind": "train", "out": str(tmp_path), "checkpoint_seconds": 600.0}
    needs = {"cores": 1, "gpus": 0.0, "variables": {}}
    runner = on_ray.Runner(order_of(Task(0, "one", (run,), False), False, options), needs)
    for _ in range(2):
        ((kind, _),) = runner.poll(0.1, heard=0)
        assert kind == "place"
    ended = until(lambda: runner.poll(1.0, heard=1))
    assert ended[-1][0] == "failed"
    assert gone in ended[-1][1]["why"]
    assert runner.poll(0.1, heard=1) == ended
    assert runner.poll(0.1, heard=1 + len(ended)) == []
    runner._cores.close()


class AskedThrice:
    """A lead that is lost twice before it can do as it is asked."""

    def __init__(self, out: Path) -> None:
        self.out, self.times, self.stop = out, 0, self

    def remote(self) -> None:
        self.times += 1
        if self.times == 3:
            StatusFile(self.out, "ray").write([], StudyOutcome(stopped=True), "stopped")


class Impatient(Watcher):
    """Presses Ctrl-C when the study is first shown."""

    pressed = False

    def show_groups(self, *table: object) -> None:
        pressed, self.pressed = self.pressed, True
        if not pressed:
            signal.raise_signal(signal.SIGINT)


def test_a_lead_is_asked_to_stop_until_the_study_is_over(tmp_path: Path) -> None:
    StatusFile(tmp_path, "ray").write([], StudyOutcome())
    lead, progress = AskedThrice(tmp_path), Impatient()
    assert study.follow(tmp_path, lead, progress).stopped
    assert lead.times == 3
    assert progress.said == ["stopping: the current runs write a checkpoint"]


class NotYet:
    """What Ray is to an actor that is being started again: it answers no calls."""

    was_current_actor_reconstructed, current_actor = True, "this actor"

    def __init__(self) -> None:
        self.killed: list[object] = []

    def get_runtime_context(self) -> NotYet:
        return self

    def nodes(self) -> list[object]:
        return []

    def kill(self, actor: object) -> None:
        self.killed.append(actor)


def test_a_lead_goes_on_while_its_actor_cannot_be_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, place = NotYet(), {"out": str(tmp_path)}
    monkeypatch.setattr(on_ray, "imported", lambda: here)
    StatusFile(tmp_path, "ray").write([], StudyOutcome())
    on_ray.Lead([], {"options": {}}, place, None)
    until(lambda: here.killed == ["this actor"], 10)
    values = read_status(tmp_path)
    assert values is not None
    assert values["state"] == "done"
    assert values["lines"] == ["the process that led the study was lost; another one goes on"]


def test_ctrl_c_writes_checkpoints_and_ends_the_study(nodes: Nodes, tmp_path: Path) -> None:
    endless = 1_000_000_000
    driver = start(
        train(tmp_path, endless, "--agent", "tabular", "--ray", "auto"), RAY_ADDRESS=nodes.address
    )
    run = tmp_path / NAMES[0]
    until(lambda: rows(run) > 2)
    driver.send_signal(signal.SIGINT)
    said, _ = driver.communicate(timeout=PATIENCE)
    assert driver.returncode == 130, said
    assert said.splitlines()[-1] == "grue: interrupted; the same command with --resume goes on"
    (step,) = saved_steps(run / "checkpoint")
    assert step // 500 == rows(run)  # It may be within a row, whose sums are kept.
    values = read_status(tmp_path)
    assert values is not None
    assert values["state"] == "stopped"


# Hosted games


def test_emulators_run_on_the_node_and_the_cores_of_their_learner(
    nodes: Nodes, two_lamps: Path, tmp_path: Path
) -> None:
    """Two runs side by side on a node of their own, the only one with two cores."""
    settings = ("--set", "table_rows=64", "--set", "episode_steps=15", "--set", "metrics_every=100")
    command = ["train", str(two_lamps), "--agent", "tabular", "--seeds", "0-1", "--together"]
    command += ["--steps", "3000", "--set", "learning_starts=3000", *settings]
    node = nodes.cluster.add_node(num_cpus=2)
    on_it = [*command, "--cores-per-group", "2", "--ray", nodes.address]
    ray_cluster.connect(nodes.address)
    until(lambda: ray.available_resources().get("CPU") == len(nodes.nodes) + 2)
    try:
        driver = start([*on_it, "--out", str(tmp_path / "ray")])
        (actor,) = until(lambda: actors([node]))
        (learner,) = until(lambda: children({actor}, b"grue.experiments.worker"))
        emulators = until(lambda: len(found := children({learner}, b"emulator")) == 2 and found)
        os.kill(learner, signal.SIGSTOP)  # It does not end while it is looked at.
        cores = os.sched_getaffinity(learner)
        assert len(cores) == min(2, len(os.sched_getaffinity(0)))
        assert [os.sched_getaffinity(emulator) for emulator in emulators] == [cores] * 2
        # The node is full: the cores of the emulators are those of the group.
        until(lambda: ray.available_resources().get("CPU") == len(nodes.nodes))
        os.kill(learner, signal.SIGCONT)
        said, _ = driver.communicate(timeout=PATIENCE)
        assert driver.returncode == 0, said
    finally:
        nodes.cluster.remove_node(node)
    assert "in up to 2 processes of emulators" in said
    until(lambda: not [pid for pid in emulators if Path(f"/proc/{pid}").exists()])
    assert entry.main([*command, "--out", str(tmp_path / "alone")]) == 0
    for run in sorted((tmp_path / "alone").iterdir()):
        same_results(tmp_path / "ray" / run.name, run)


def test_a_sweep_to_an_address(
    nodes: Nodes, alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes train in copies; the storage has the runs, and the study's state."""
    pytest.importorskip("fsspec", reason="the extra ray is not installed")
    monkeypatch.setenv("GRUE_COPIES", str(tmp_path / "copies"))
    address = f"file://{tmp_path}/bucket"
    sweep = ("--agents", "tabular,li-tabular", "--seeds", "0")
    command = train(Path(address), 2_000, *sweep, "--ray", nodes.address)
    assert entry.main(command) == 0
    for name in (NAMES[0], "saladworld-1-li-tabular-none-seed0"):
        same_results(tmp_path / "bucket" / name, alone / "sweep" / name)
    values = read_status(tmp_path / "bucket")
    assert values is not None
    assert values["state"] == "done"
    assert not list((tmp_path / "bucket").glob(".seen*"))


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
