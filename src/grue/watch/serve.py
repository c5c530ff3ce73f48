"""Starts the server: its socket, its address, and a process beside a training."""

from __future__ import annotations

import errno
import ipaddress
import os
import secrets
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from grue.errors import GrueError, UsageError
from grue.processes import stop_with_parent
from grue.watch.subjects import RunSubject, Subject

if TYPE_CHECKING:
    from uvicorn import Server

HOST = "127.0.0.1"


def make_server(subjects: Sequence[Subject], token: str | None) -> Server:
    from uvicorn import Config, Server

    from grue.watch.room import WatchRoom
    from grue.watch.server import make_app

    # The application tells its own errors.
    quiet = {"log_level": "critical", "lifespan": "off", "server_header": False}
    app = make_app(WatchRoom(subjects), token)
    return Server(Config(app, timeout_graceful_shutdown=1, **quiet))  # type: ignore[arg-type]


def serve(subjects: Sequence[Subject], listening: socket.socket, token: str | None) -> None:
    """Answers until a signal ends it."""
    make_server(subjects, token).run(sockets=[listening])


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens, or an error that says why not."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise UsageError(
            f"--host {host}: {error.strerror}; give an address of this machine"
        ) from None
    listening = socket.socket(found[0], found[1])
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(found[4])
        listening.listen(64)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            why = f"port {port} is in use; give another --port, or --port 0 for any free one"
            raise GrueError(why) from None
        raise GrueError(f"cannot listen on {host} port {port}: {error.strerror}") from None
    return listening


def token_for(host: str) -> str | None:
    """A new token, unless only this machine can reach the address."""
    try:
        alone = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        alone = False
    return None if alone else secrets.token_urlsafe(16)


def address(host: str, listening: socket.socket, token: str | None) -> str:
    """What to open in a browser."""
    name = socket.gethostname() if host in ("0.0.0.0", "::") else host
    name = f"[{name}]" if ":" in name else name
    rest = "" if token is None else f"?token={token}"
    return f"http://{name}:{listening.getsockname()[1]}/{rest}"


@contextmanager
def beside(folders: Sequence[Path]) -> Iterator[str]:
    """Serves run folders, which need not be there yet, from a process of its own.

    It uses the CPU, to leave an accelerator to the training. Gives the address.
    """
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve_beside, args=(list(folders), theirs), daemon=True)
    before = os.environ.get("JAX_PLATFORMS")
    os.environ["JAX_PLATFORMS"] = "cpu"
    try:
        process.start()
    finally:
        if before is None:
            del os.environ["JAX_PLATFORMS"]
        else:
            os.environ["JAX_PLATFORMS"] = before
    theirs.close()
    try:
        yield ours.recv()
    except EOFError:
        raise GrueError("the server of --watch could not start; train without --watch") from None
    finally:
        process.terminate()
        process.join(5)


def _serve_beside(folders: list[Path], tell: Connection) -> None:
    import signal

    stop_with_parent()
    # Ctrl-C is for the training, which then ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    listening = listen(HOST, 0)
    tell.send(address(HOST, listening, None))
    subjects: list[Subject] = [RunSubject(n, folder) for n, folder in enumerate(folders)]
    serve(subjects, listening, None)
