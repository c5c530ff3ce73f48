"""The page: its files, and the HTML that joins them, for a server or as one file."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

KINDS = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".html": "text/html",
    ".svg": "image/svg+xml",
}


@cache
def static_files() -> Mapping[str, bytes]:
    """Every file of the page by name. The server opens no other."""
    folder = files("grue.watch") / "static"
    return {
        each.name: each.read_bytes()
        for each in sorted(folder.iterdir(), key=lambda each: each.name)
        if each.name[each.name.rfind(".") :] in KINDS
    }


def modules() -> list[str]:
    return [name for name in static_files() if name.endswith(".js")]


@cache
def served_page() -> tuple[str, str]:
    """The page of the server, and its Content-Security-Policy."""
    names = _imports({name: f"/static/{name}" for name in modules()})
    head = '<link rel="stylesheet" href="/static/style.css">'
    start = '<script type="module" src="/static/main.js"></script>'
    digest = base64.b64encode(hashlib.sha256(names.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'self' 'sha256-{digest}'; style-src 'self'; "
        "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    return _filled(head, names, start), policy


def stored_page(data: Mapping[str, Any]) -> str:
    """One HTML file with everything inside."""
    found = static_files()
    names = _imports({name: _inside(found[name]) for name in modules()})
    policy = (
        "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    head = (
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"<style>\n{found['style.css'].decode()}</style>"
    )
    # "</script>" or "<!--" in a game's text must not end the element.
    text = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    start = (
        f'<script type="application/json" id="stored">{text}</script>\n'
        '<script type="module">import "grue/main";</script>'
    )
    return _filled(head, names, start)


def _imports(places: Mapping[str, str]) -> str:
    named = {f"grue/{name.removesuffix('.js')}": place for name, place in places.items()}
    return json.dumps({"imports": named}, separators=(",", ":"))


def _inside(code: bytes) -> str:
    return f"data:text/javascript;base64,{base64.b64encode(code).decode()}"


def _filled(head: str, imports: str, start: str) -> str:
    page = static_files()["index.html"].decode()
    for mark, text in (
        ("<!-- style -->", head),
        ("<!-- imports -->", f'<script type="importmap">{imports}</script>'),
        ("<!-- start -->", start),
    ):
        assert page.count(mark) == 1
        page = page.replace(mark, text)
    return page
