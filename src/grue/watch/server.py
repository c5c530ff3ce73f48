"""The server of the page: Starlette's routes, and who may ask.

Without a token it answers only to loopback names, so that no other site's page can reach it by a
name that points here (DNS rebinding). With a token it answers only to those who know it.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import traceback
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from grue.errors import GrueError, is_out_of_memory
from grue.watch.page import KINDS, served_page, static_files
from grue.watch.room import GoneError, WatchRoom

LOOPBACK = ("localhost", "127.0.0.1", "::1")
LONGEST_BODY = 8_000_000
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class RefusedError(Exception):
    """A request that is not answered."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class TokenGuard:
    """Checks every request before anything is done for it."""

    def __init__(self, token: str | None) -> None:
        self.token = token

    def check(self, request: Request) -> None:
        host = _host(request)
        if self.token is None and host not in LOOPBACK:
            raise RefusedError(
                403, f"this server answers to localhost only, not to {host[:80]!r}; see --host"
            )
        origin = request.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
            raise RefusedError(403, "this request comes from a page of another site")
        if self.token is not None and not self._knows(request):
            raise RefusedError(
                403, "this address lacks the token: open the whole address that grue watch printed"
            )

    def _knows(self, request: Request) -> bool:
        assert self.token is not None
        given = request.query_params.get("token") or request.cookies.get(cookie(request), "")
        return hmac.compare_digest(given.encode(), self.token.encode())


def cookie(request: Request) -> str:
    """Cookies do not tell ports apart, so the name does."""
    return f"grue-{request.url.port or 80}"


def _guarded(guard: TokenGuard, answer: Callable[[Request], Awaitable[Response]]) -> Any:
    """An endpoint that checks the request first, and tells errors as JSON."""

    async def endpoint(request: Request) -> Response:
        try:
            guard.check(request)
            response = await answer(request)
        except RefusedError as error:
            response = _error(error.status, str(error))
        except GoneError as error:
            response = _error(410, str(error))
        except GrueError as error:
            response = _error(400, str(error))
        except OSError as error:
            response = _error(500, f"{error.filename or 'a file'}: {error.strerror}")
        except asyncio.CancelledError:
            # uvicorn gives up waiting for this answer when it is told to end.
            response = _error(503, "the server is being stopped")
        except Exception as error:
            if is_out_of_memory(error):
                response = _error(500, "there is not enough memory for this")
            else:
                traceback.print_exc()
                told = f"{type(error).__name__}: {error}"
                response = _error(500, f"the server failed ({told}); its terminal tells more")
        response.headers.update(HEADERS)
        return response

    return endpoint


def make_app(room: WatchRoom, token: str | None = None) -> Starlette:
    guard = TokenGuard(token)
    # One thread plays, in the order asked. Another reads files, while that one is busy.
    player, reader = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
    player.submit(room.warm_up)

    async def answered(function: Callable[..., Any], asked: Mapping[str, Any]) -> Any:
        worker = reader if function in (room.about, room.curves) else player
        return await asyncio.get_running_loop().run_in_executor(worker, function, asked)

    async def index(request: Request) -> Response:
        if guard.token is not None and "token" in request.query_params:
            # The token leaves the address, so that it is in no history and no screenshot.
            moved = RedirectResponse("/", 303)
            moved.set_cookie(cookie(request), guard.token, httponly=True, samesite="strict")
            return moved
        page, policy = served_page()
        return HTMLResponse(page, headers={"Content-Security-Policy": policy})

    async def static(request: Request) -> Response:
        name = request.path_params["name"]
        found = static_files().get(name)
        if found is None:
            raise RefusedError(404, "there is no such file")
        kind = KINDS[name[name.rfind(".") :]]
        return Response(found, media_type=kind)

    async def ask(request: Request) -> Response:
        function = QUESTIONS.get(request.path_params["question"])
        if function is None:
            raise RefusedError(404, "there is no such question")
        answer = await answered(getattr(room, function), await _body(request))
        if isinstance(answer, str):
            return HTMLResponse(answer)
        return Response(_json(answer), media_type="application/json")

    async def missing(request: Request) -> Response:
        raise RefusedError(404, "there is nothing here; the page is at /")

    return Starlette(
        routes=[
            Route("/", _guarded(guard, index)),
            Route("/static/{name}", _guarded(guard, static)),
            Route("/api/{question}", _guarded(guard, ask), methods=["POST"]),
            Route("/{rest:path}", _guarded(guard, missing)),
        ]
    )


QUESTIONS = {
    "about": "about",
    "begin": "begin",
    "play": "play",
    "thoughts": "thoughts",
    "curves": "curves",
    "episodes": "episodes",
    "more-episodes": "more_episodes",
    "export": "export",
}
"""What the page may ask, and the method of ``Room`` that answers."""


async def _body(request: Request) -> Mapping[str, Any]:
    # A page of another site cannot send this type without asking first.
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise RefusedError(415, "a question is JSON")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > LONGEST_BODY:
            raise RefusedError(413, f"a question has at most {LONGEST_BODY} bytes")
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        raise RefusedError(400, "the question is no JSON") from None
    if not isinstance(asked, dict):
        raise RefusedError(400, "a question is a JSON object")
    return asked


def _host(request: Request) -> str:
    try:
        return urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    except ValueError:
        return ""


def _error(status: int, why: str) -> Response:
    return Response(_json({"error": " ".join(why.split())}), status, media_type="application/json")


def _json(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
