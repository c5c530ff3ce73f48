"""grue watch without a browser: sessions, the server's answers, and bad input."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import jax
import numpy as np
import pytest
from small_runs import config
from starlette.testclient import TestClient

import grue
from grue.cli import entry
from grue.engine.hosted_textworld import HostedEnv
from grue.training.evaluate import evaluate_player
from grue.training.runs import load_state, stored_steps
from grue.training.train import train_all
from grue.watch import session as sessions
from grue.watch.episodes import play_many
from grue.watch.page import served_page, static_files, stored_page
from grue.watch.room import WatchRoom
from grue.watch.serve import listen, token_for
from grue.watch.server import make_app
from grue.watch.session import Session, SessionSeed
from grue.watch.stage import StageView
from grue.watch.subjects import GameSubject, RunSubject, find_subjects

LONGEST_SCRIPT = 420
WON = ["go south", "go east", "go east", "take lettuce", "go west", "go west", "go north"]
WON += ["put lettuce on counter"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("watched")
    train_all([config(steps=400, average_over=200)], out, keep_every=200)
    return out


@pytest.fixture(scope="module")
def run(runs: Path) -> RunSubject:
    (found,) = find_subjects([str(runs)])
    assert isinstance(found, RunSubject)
    return found


@pytest.fixture
def client(run: RunSubject) -> Iterator[TestClient]:
    game = GameSubject(1, grue.load("saladworld-1"))
    with TestClient(make_app(WatchRoom([run, game])), base_url="http://localhost") as made:
        yield made


def ask(client: TestClient, question: str, status: int = 200, **asked: Any) -> Any:
    response = client.post(f"/api/{question}", json=asked)
    assert response.status_code == status, response.text
    return response.json()


# Sessions


def test_an_agent_plays_as_grue_eval_does(run: RunSubject) -> None:
    for epsilon in (0.0, 0.5):
        player = grue.load_agent(run.folder)
        session, mind = Session(run.stage, SessionSeed(0, 3, epsilon)), run.mind()
        step, moment = player.reset(3), session.moments[0]
        for _ in range(12):
            action = player.act(step, epsilon)
            decided = session.decided(moment.number, mind)
            assert player.decision is not None
            np.testing.assert_array_equal(decided.values, player.decision.values)
            assert decided.action == action
            moment, step = session.play_agent(moment.number, mind), player.step(action)
            assert moment.step.text == step.text


def test_a_branch_begins_where_another_command_is_given(run: RunSubject) -> None:
    session = Session(run.stage, SessionSeed())
    for command in WON:
        session.play(len(session.moments) - 1, command)
    assert session.moments[-1].over == "won"
    other = session.play(3, "look")
    assert (other.number, other.parent, other.depth) == (9, 3, 4)
    assert session.play(3, "take lettuce").number == 4
    assert session.line(9) == [0, 1, 2, 3, 9]
    with pytest.raises(grue.UsageError, match="is over here"):
        session.play(8, "look")
    with pytest.raises(grue.UsageError, match="did you mean 'take lettuce'"):
        session.play(0, "take letuce")


def test_states_that_are_forgotten_are_played_again(
    run: RunSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Session(run.stage, SessionSeed())
    monkeypatch.setattr(sessions, "KEPT_STATES", 3)
    small = Session(run.stage, SessionSeed())
    for number, command in enumerate(WON):
        whole.play(number, command)
        small.play(number, command)
    for number in (5, 2, 8, 0):
        jax.tree.map(np.testing.assert_array_equal, small.state(number), whole.state(number))


def test_the_map_follows_the_real_game(hosted: Any) -> None:
    """Facts that follow from rules are those that the real game reports."""
    game, real = grue.load("saladworld-7"), hosted(7)
    session, state = (
        Session(StageView(grue.make("saladworld-7"), game), SessionSeed()),
        real.reset()[0],
    )
    assert isinstance(real, HostedEnv)
    for number, command in enumerate(game.walkthrough):
        state, _ = real.step(state, command)
        assert session.play(number, command).facts == state.facts
    world = session.stage.world
    assert world is not None
    facts = session.moments[4].facts
    assert facts is not None
    told, plan = world.told(facts), world.plan()
    assert plan["rooms"][told["room"]]["name"] == "vegetable market"
    lettuce = [thing["name"] for thing in plan["things"]].index("lettuce")
    assert told["things"][lettuce] == ["I", ""]


def test_many_episodes_are_counted(run: RunSubject) -> None:
    mind = run.mind()
    *_, tally = play_many(mind, 70, 0.5, 0)
    assert tally.episodes == 70
    played = evaluate_player(mind.player, 70, 0.5, 0)
    records = [step for episode in range(70) for step in played.record(episode)]
    tried = Counter(step.command for step in records)
    worked = Counter(step.command for step in records if step.admissible)
    told = tally.told()
    assert {c["command"]: (c["tried"], c["worked"]) for c in told["commands"]} == {
        command: (number, worked[command]) for command, number in tried.items()
    }
    assert told["steps"] == len(records) == sum(told["rooms"]["steps"])
    done = Counter(name for step in records for name in step.subtasks)
    assert told["subtasks"] == [done[name] for name in run.stage.env.subtask_names]
    assert sum(map(sum, told["rooms"]["ends"])) == 70
    assert told["ends"]["won"] == played.won.sum()
    # A subtask counts in the room where its command was given.
    kitchen = [r["name"] for r in run.stage.world.plan()["rooms"]].index("kitchen")  # type: ignore[union-attr]
    assert [row[1] for row in told["rooms"]["subtasks"]] == [
        done["Put the lettuce on the counter."] if room == kitchen else 0 for room in range(4)
    ]


def test_kept_agents_are_those_of_their_step(runs: Path, run: RunSubject, tmp_path: Path) -> None:
    assert stored_steps(run.folder) == [200, 400]
    train_all([config(steps=400, average_over=200)], tmp_path, keep_every=400)
    ours, theirs = load_state(run.folder, 400)[2], load_state(tmp_path / run.name)[2]
    jax.tree.map(np.testing.assert_array_equal, ours.learned, theirs.learned)
    early = load_state(run.folder, 200)[2].learned
    same = jax.tree.map(lambda a, b: bool((a == b).all()), early, ours.learned)
    assert not all(jax.tree.leaves(same))
    assert (run.folder / "kept" / "step-000000200.npz").stat().st_size < 200_000
    with pytest.raises(grue.UsageError, match="no checkpoint of step 300; there are 200, 400"):
        load_state(run.folder, 300)
    with pytest.raises(grue.UsageError, match="multiple of metrics_every, which is 200, not 50"):
        train_all([config(steps=400)], tmp_path / "no", keep_every=50)
    assert not (tmp_path / "no").exists()


# The server


def test_a_session_is_restored_from_its_moves(client: TestClient) -> None:
    begun = ask(client, "begin", subject=0)
    moves = [[n, command, "you"] for n, command in enumerate(WON)]
    again = ask(client, "begin", subject=0, moves=[*moves, [3, "look", "agent"]])
    assert [m["id"] for m in begun["moments"]] == [0]
    told = ask(client, "play", session=again["session"], at=9, command="go west")
    assert (told["moments"][0]["id"], told["moments"][0]["depth"]) == (10, 5)
    gone = ask(client, "play", 410, session="no", at=0, command="look")
    assert "the server was started again" in gone["error"]


def test_thoughts_of_two_checkpoints(client: TestClient) -> None:
    name = ask(client, "begin", subject=0)["session"]
    late, early = (
        ask(client, "thoughts", session=name, moments=[0], mind=0, step=step)["thoughts"]["0"]
        for step in (None, 200)
    )
    assert len(late["values"]) == len(early["estimates"]) == 8
    assert late["values"] != early["values"]
    brief = ask(client, "thoughts", session=name, moments=[0], mind=0, brief=True)
    values = [late["values"][n] for n in late["candidates"]]
    assert brief["thoughts"]["0"] == {"head": late["head"], "value": max(values)}


@pytest.mark.parametrize(
    ("question", "asked", "says"),
    [
        ("begin", {"subject": 7}, "subject is a number from 0 to 1, not 7"),
        ("begin", {"subject": "../../etc/passwd"}, "subject is a whole number"),
        ("begin", {"subject": 0, "epsilon": 2}, "epsilon lies from 0 to 1, not '2'"),
        ("begin", {"subject": 0, "moves": [[0, "look", "root"]]}, "a move is a list"),
        ("curves", {"subject": 1}, "saladworld-1 is a game without an agent"),
        ("episodes", {"subject": 0, "count": 10**9}, "count lies from 0 to 10000"),
    ],
)
def test_wrong_questions(client: TestClient, question: str, asked: Any, says: str) -> None:
    assert says in ask(client, question, 400, **asked)["error"]


def test_forged_paths_find_nothing(client: TestClient) -> None:
    for path in ("/static/../server.py", "/static/..%2fserver.py", "/static/%2e%2e/page.py"):
        assert client.get(path).status_code == 404
    assert client.get("/etc/passwd").status_code == 404
    assert ask(client, "__init__", 404)["error"] == "there is no such question"
    assert set(static_files()) >= {"index.html", "main.js", "style.css"}


def test_only_this_machine_and_this_page_may_ask(client: TestClient) -> None:
    rebound = client.post("/api/about", json={}, headers={"Host": "evil.example:8484"})
    assert rebound.status_code == 403
    assert "answers to localhost only" in rebound.json()["error"]
    foreign = client.post("/api/about", json={}, headers={"Origin": "http://evil.example"})
    assert foreign.status_code == 403
    form = client.post("/api/about", content="{}", headers={"Content-Type": "text/plain"})
    assert form.status_code == 415
    page = client.get("/")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]


def test_another_host_needs_the_token(run: RunSubject) -> None:
    assert token_for("127.0.0.1") is None
    assert token_for("localhost") is None
    token = token_for("0.0.0.0")
    assert token is not None
    app = make_app(WatchRoom([run]), token)
    with TestClient(app, base_url="http://box:8484", follow_redirects=True) as client:
        for place in ("/", "/static/main.js", "/?token=wrong", "/?token="):
            refused = client.get(place)
            assert refused.status_code == 403
            assert "lacks the token" in refused.json()["error"]
        assert client.post("/api/about", json={}).status_code == 403
        assert client.get(f"/?token={token}").url.query == b""
        assert len(client.post("/api/about", json={}).json()["subjects"]) == 1


def test_a_second_viewer_has_a_session_of_their_own(client: TestClient) -> None:
    one, two = (ask(client, "begin", subject=0)["session"] for _ in range(2))
    ask(client, "play", session=one, at=0, command="go south")
    told = ask(client, "play", session=two, at=0, command="look")
    assert told["moments"][0]["id"] == 1
    assert "kitchen" in told["moments"][0]["text"].lower()


def test_an_error_of_the_server_is_told(
    run: RunSubject, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """To the page in a line, and to the terminal in full."""
    room = WatchRoom([run])
    monkeypatch.setattr(room, "about", lambda asked: [] + 1)  # type: ignore[operator]
    with TestClient(make_app(room), base_url="http://localhost") as client:
        told = ask(client, "about", 500)["error"]
    assert told.startswith("the server failed (TypeError: ")
    assert "Traceback" in capsys.readouterr().err


def test_the_server_ends_in_the_middle_of_an_answer(run: RunSubject) -> None:
    """With Ctrl-C, and without a traceback."""
    words = ["watch", str(run.folder), "--port", "0"]
    pipe: Any = subprocess.PIPE
    process = subprocess.Popen(
        [sys.executable, "-m", "grue.cli", *words], stdout=pipe, stderr=pipe, text=True
    )
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    body = json.dumps({"subject": 0}).encode()
    asked = Request(f"{address}api/begin", body, {"Content-Type": "application/json"})

    def ask_once() -> None:
        with suppress(OSError):
            urlopen(asked, timeout=60).read()

    asking = threading.Thread(target=ask_once)
    asking.start()  # Its programs are being compiled.
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    asking.join(60)
    assert "Traceback" not in said
    assert said == ""


# The page's files


def test_scripts_are_short_and_load_nothing_from_outside() -> None:
    for name, content in static_files().items():
        text = content.decode()
        assert len(text.splitlines()) <= LONGEST_SCRIPT, name
        allowed = text.replace("http://www.w3.org/2000/svg", "")
        assert "http" not in allowed, name
        assert "innerHTML" not in text, name
    page, policy = served_page()
    assert "onclick" not in page
    assert "'sha256-" in policy


def test_a_text_cannot_leave_the_stored_page() -> None:
    text = "</script><script>alert(1)</script><!--"
    page = stored_page({"text": text})
    inside = page.split('id="stored">')[1].split("</script>")[0]
    assert json.loads(inside) == {"text": text}


# Bad input


def complaint(arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> str:
    assert entry.main(arguments) == code
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


def test_damaged_runs_are_told_and_the_others_shown(run: RunSubject, tmp_path: Path) -> None:
    for name, text in {"a": "{", "b": json.dumps({"agent": "mine", "about": {}})}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(text)
    (tmp_path / "c").symlink_to(run.folder)
    found = find_subjects([str(tmp_path)])
    damaged, unknown, whole = (subject.told() for subject in found)
    assert "config.json is damaged" in damaged["problem"]
    assert "there is no agent 'mine'" in unknown["problem"]
    assert whole["checkpoints"] == [200, 400]
    with TestClient(make_app(WatchRoom(found)), base_url="http://localhost") as client:
        assert "is damaged" in ask(client, "begin", 400, subject=0)["error"]
        ask(client, "begin", subject=2)


def test_a_port_in_use(run: RunSubject, capsys: pytest.CaptureFixture[str]) -> None:
    with listen("127.0.0.1", 0) as taken:
        port = str(taken.getsockname()[1])
        said = complaint(["watch", str(run.folder), "--port", port], 1, capsys)
    assert f"port {port} is in use; give another --port" in said
    with pytest.raises(grue.UsageError, match="give an address of this machine"):
        listen("no.such.host.invalid", 0)


def test_nothing_to_watch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "holds none" in complaint(["watch", str(tmp_path)], 2, capsys)
    assert "there is no game 'nothing'" in complaint(["watch", "nothing"], 2, capsys)
    page = str(tmp_path / "page.html")
    said = complaint(["watch", "saladworld-1", "--export", page], 2, capsys)
    assert "a game without an agent" in said
    assert not (tmp_path / "page.html").exists()


def test_an_episode_is_exported_and_linked(
    run: RunSubject, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = run.folder / "episode.html"
    assert entry.main(["watch", str(run.folder), "--export", str(page)]) == 0
    inside = page.read_text().split('id="stored">')[1].split("</script>")[0]
    stored = json.loads(inside)
    played = evaluate_player(run.mind().player, 1, 0.0, 0).record()
    assert [m["command"] for m in stored["moments"][1:]] == [step.command for step in played]
    report = tmp_path / "report.html"
    assert entry.main(["report", str(run.folder.parent), "-o", str(report)]) == 0
    assert f'{run.name}/episode.html">{run.name}</a>' in report.read_text()
    page.unlink()
