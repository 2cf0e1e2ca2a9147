"""Imports go one way: no two modules of a folder import each other, at any depth, not even inside functions."""

import ast
import graphlib
import importlib.util

import pytest

from conftest import ROOT

FOLDERS = {
    "maelm_fairseq": "maelm_fairseq",
    "recipes": "",
    "recipes/evaluation": "evaluation",
    "data-prep": "",
    "experiments": "",
}


def modules(folder, package):
    """{dotted name: path} of a folder's Python files; those of recipes and data-prep are top-level modules."""
    found = {}
    for path in (ROOT / folder).rglob("*.py"):
        if not package and (path.parent / "__init__.py").exists():
            continue  # a package, which has an entry of its own in FOLDERS
        parts = path.relative_to(ROOT / folder).with_suffix("").parts if package else (path.stem,)
        if parts[-1] == "__init__":
            parts = parts[:-1]
        found[".".join(([package] if package else []) + list(parts))] = path
    return found


def imported(path, name):
    """Dotted names that a module imports, wherever in it."""
    package = name if path.stem == "__init__" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), package or None)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("folder", FOLDERS)
def test_there_is_no_circle(folder):
    package = FOLDERS[folder]
    known = modules(folder, package)
    edges = {  # `from . import x` means x, not the package itself
        name: {other for other in imported(path, name) if other in known and other != package} - {name}
        for name, path in known.items()
    }
    assert sum(map(len, edges.values())) > 5
    try:
        order = list(graphlib.TopologicalSorter(edges).static_order())
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))
    if folder == "maelm_fairseq":
        floors = ["model", "engine.checkpoints", "hub"], ["task", "engine.replaced"]
        for floor in floors:
            places = [order.index(f"maelm_fairseq.{name}") for name in floor]
            assert places == sorted(places)
