"""What the pages tell people to type is what there is."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

import grue
from grue.cli import app

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def commands() -> list[str]:
    lines = [line for page in PAGES for block in blocks(page, "sh") for line in block.splitlines()]
    return sorted({line.split("#")[0].strip() for line in lines if line.startswith("grue ")})


def test_there_are_commands_to_check() -> None:
    assert len(commands()) >= 10


@pytest.mark.parametrize("line", commands())
def test_every_command_is_one(line: str) -> None:
    """Parsed with all its options, and not run."""
    command: Any = typer.main.get_command(app)
    words = shlex.split(line)[1:]
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    command.make_context("grue", words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_uses_names_of_grue(page: Path) -> None:
    for block in blocks(page, "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert node.value.id != "grue" or hasattr(grue, node.attr), node.attr
