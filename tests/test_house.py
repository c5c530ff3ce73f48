"""How src is built: which room may import which, no cycles, no long functions and modules."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from beartype.roar import BeartypeCallHintViolation
from checked_types import PACKAGES
from conftest import LONGEST

from grue.engine.compiler import build
from grue.games import registry
from grue.games.tokens import StoryVocabulary

SOURCE = Path(__file__).parents[1] / "src"
ROOMS = ("games", "engine", "agents", "training", "experiments", "reports", "watch", "cli")
"""Each may import itself and those before it."""
ROOT_MODULES = ("errors", "files", "processes")
"""For all rooms; they import none."""
LONGEST_FUNCTION, LONGEST_MODULE = 60, 420
TRAINS = {
    "grue.training.train",
    "grue.training.trainer",
    "grue.experiments.runner",
    "grue.experiments.study",
}


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}
TREES = {name: ast.parse(path.read_text()) for name, path in FILES.items()}


def imported(node: ast.AST, module: str, known: Iterable[str]) -> Iterator[str]:
    """The modules of grue that an import statement names, as absolute names."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "grue")
    elif isinstance(node, ast.ImportFrom):
        is_package = module in FILES and FILES[module].name == "__init__.py"
        parts = module.split(".") if node.level else []
        above = parts[: len(parts) - node.level + is_package]
        base = ".".join([*above, *filter(None, [node.module])])
        if base.split(".")[0] == "grue":
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield inner if inner in known else base


def all_imports(tree: ast.AST, module: str, known: Iterable[str]) -> set[str]:
    """Also those inside functions and for type checkers alone."""
    return {name for node in ast.walk(tree) for name in imported(node, module, known)}


def first_imports(tree: ast.AST, module: str, known: Iterable[str]) -> set[str]:
    """Those that run when the module is imported."""
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        found.update(imported(node, module, known))
        found |= first_imports(node, module, known)
    return found


def wrong_arrows(imports: Mapping[str, Iterable[str]]) -> list[str]:
    """Imports of a room to the right, and of any room by a module at the root."""
    found = []
    for module, names in imports.items():
        _, room, *_ = (*module.split("."), "")
        for name in sorted(names):
            _, other, *_ = (*name.split("."), "")
            if other not in ROOMS:
                allowed = other in ("", *ROOT_MODULES)
            else:
                allowed = room in ROOMS and ROOMS.index(other) <= ROOMS.index(room)
            if not allowed:
                found.append(f"{module} imports {name}")
    return found


def cycle_in(imports: Mapping[str, Iterable[str]]) -> list[str]:
    """Some modules each of which imports the next, and the last the first; nothing if none do."""
    done: set[str] = set()

    def search(module: str, path: list[str]) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return []
        for name in sorted(imports.get(module, ())):
            if found := search(name, [*path, module]):
                return found
        done.add(module)
        return []

    return next((found for module in sorted(imports) if (found := search(module, []))), [])


def reached(begin: Iterable[str], imports: Mapping[str, Iterable[str]]) -> set[str]:
    found, left = set(), list(begin)
    while left:
        module = left.pop()
        if module not in found:
            found.add(module)
            left += imports.get(module, ())
    return found


def long_functions(trees: Mapping[str, ast.AST]) -> list[str]:
    return [
        f"{module}.{node.name} has {lines} lines"
        for module, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > LONGEST_FUNCTION
    ]


# What src is like


def test_every_module_is_in_a_room_or_for_all() -> None:
    places = {name.split(".")[1] for name in FILES if "." in name}
    assert places <= {*ROOMS, *ROOT_MODULES}


def test_arrows_point_one_way() -> None:
    """But for grue/__init__.py, whose names come from everywhere."""
    imports = {m: all_imports(tree, m, FILES) for m, tree in TREES.items() if m != "grue"}
    assert wrong_arrows(imports) == []


def test_no_module_imports_itself_in_a_circle() -> None:
    circle = cycle_in({m: first_imports(tree, m, FILES) for m, tree in TREES.items()})
    assert " → ".join(circle) == ""


def test_reports_never_train() -> None:
    imports = {m: all_imports(tree, m, FILES) for m, tree in TREES.items() if m != "grue"}
    reports = [module for module in imports if module.startswith("grue.reports")]
    assert len(reports) > 10
    assert reached(reports, imports) & TRAINS == set()


def test_functions_are_short() -> None:
    assert long_functions(TREES) == []


def test_modules_are_short() -> None:
    lengths = {module: len(path.read_text().splitlines()) for module, path in FILES.items()}
    assert {m: lines for m, lines in lengths.items() if lines > LONGEST_MODULE} == {}


def names_of_classes(trees: Mapping[str, ast.AST]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for module, tree in trees.items():
        for node in ast.iter_child_nodes(tree):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(module)
    return found


def test_a_class_has_a_name_of_its_own() -> None:
    found = names_of_classes(TREES)
    assert len(found) > 100
    assert {name: modules for name, modules in found.items() if len(modules) > 1} == {}


# That these tests can fail


def test_classes_of_one_name_are_found() -> None:
    trees = {module: ast.parse("class Row: ...") for module in ("a", "b")}
    assert names_of_classes(trees) == {"Row": ["a", "b"]}


def test_imports_are_found_wherever_they_are() -> None:
    code = """
import grue.cli.app
from grue.training import metrics, Row
if TYPE_CHECKING:
    from grue.reports.page import page
try:
    from grue.files import expanded
except ImportError:
    from . import sibling
class Inside:
    from ..engine.step import Step
def later():
    import numpy, grue.errors
"""
    known = {"grue.training.metrics", "grue.agents.sibling"}
    at_once = {"grue.cli.app", "grue.training.metrics", "grue.training", "grue.files"}
    at_once |= {"grue.agents.sibling", "grue.engine.step"}
    tree = ast.parse(code)
    assert first_imports(tree, "grue.agents.one", known) == at_once
    everything = at_once | {"grue.reports.page", "grue.errors"}
    assert all_imports(tree, "grue.agents.one", known) == everything


@pytest.mark.parametrize(
    ("module", "name", "right"),
    [
        ("grue.agents.deep", "grue.games.game", True),
        ("grue.agents.deep", "grue.agents.kernels", True),
        ("grue.agents.deep", "grue.errors", True),
        ("grue.agents.deep", "grue", True),
        ("grue.agents.deep", "grue.training.config", False),
        ("grue.reports.page", "grue.watch.server", False),
        ("grue.files", "grue.errors", True),
        ("grue.files", "grue.games.game", False),
        ("grue.cli.app", "grue.attic", False),
    ],
)
def test_wrong_arrows_are_found(module: str, name: str, right: bool) -> None:
    assert wrong_arrows({module: {name}}) == ([] if right else [f"{module} imports {name}"])


def test_cycles_are_found() -> None:
    assert cycle_in({"a": {"b", "c"}, "b": {"d"}, "c": {"d"}}) == []
    assert cycle_in({"a": {"b"}, "b": {"c"}, "c": {"d", "b"}}) == ["b", "c", "b"]
    assert cycle_in({"a": {"a"}}) == ["a", "a"]


def test_long_functions_are_found() -> None:
    def made(lines: int) -> dict[str, ast.AST]:
        inside = "\n".join(["        pass"] * (lines - 1))
        return {"m": ast.parse(f"class A:\n    async def f():\n{inside}")}

    assert long_functions(made(LONGEST_FUNCTION)) == []
    assert long_functions(made(LONGEST_FUNCTION + 1)) == [f"m.f has {LONGEST_FUNCTION + 1} lines"]


def test_the_longest_files_are_there() -> None:
    """A file that was renamed would come last, and keep one of two workers waiting."""
    assert [name for name in LONGEST if not (Path(__file__).parent / f"{name}.py").exists()] == []


def test_annotations_without_arrays_are_checked() -> None:
    wrong: Any = 5
    for call in (registry.load, build.compile_game, StoryVocabulary):
        with pytest.raises(BeartypeCallHintViolation):
            call(wrong)


def test_arrays_with_named_axes_are_left_to_jaxtyping() -> None:
    """In the other packages its hook checks the names of axes, too."""
    inside = [m for m in FILES if "." in m and m.split(".")[1] in PACKAGES]
    assert len(inside) > 20
    assert [m for m in inside if "jaxtyping" in FILES[m].read_text()] == []
