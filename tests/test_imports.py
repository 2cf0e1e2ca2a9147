"""Imports go one way: no two modules import each other, at any depth, not even inside functions."""

import ast
import graphlib
import itertools
import re

import pytest

from conftest import PLUGIN, ROOT

FOLDERS = [ROOT / name for name in ["benchmarks", "data-prep", "experiments", "maelm_fairseq", "recipes"]]
FILES = {path for folder in FOLDERS for path in folder.rglob("*.py")}


def imported(path):
    """The files that a file imports, wherever in it; `from . import x` means x, not the package itself."""
    top = next(folder for folder in path.parents if not (folder / "__init__.py").exists())
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        folders, names = [top, ROOT, *FOLDERS], []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                folders = [path.parents[node.level - 1]]
            names = [node.module or "", *(f"{node.module or ''}.{alias.name}".strip(".") for alias in node.names)]
        for name in filter(None, names):
            for folder in folders:
                module = folder / name.replace(".", "/")
                same = FILES & {module.with_name(module.name + ".py"), module / "__init__.py"}
                if same:
                    found |= same
                    break
    return found - {path}


IMPORTS = {path: imported(path) for path in FILES}


def room(path):
    """The room of a file; None for the package's `__init__`, which imports all that registers itself."""
    folder, *below = path.relative_to(ROOT).with_suffix("").parts
    if ROOT / folder != PLUGIN:
        return folder
    own = {"hub": "hub", "cpu_kernels": "cpu_kernels", "effective_rank": "analysis", "__init__": None}
    return below[0] if len(below) > 1 else own.get(below[0], "method")


def test_there_is_no_circle():
    for folder in [*FOLDERS, ROOT / "recipes" / "evaluation"]:
        inside = [path for path in FILES if folder in path.parents]
        assert sum(len(IMPORTS[path].intersection(inside)) for path in inside) > 4, folder
    try:
        graphlib.TopologicalSorter(IMPORTS).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(str(path.relative_to(ROOT)) for path in error.args[1]))


def test_the_page_draws_what_imports_from_what():
    """An arrow down stands for all that it leads to; the dashed ones, which lead up, are all that there are."""
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    (picture,) = re.findall(r"^```mermaid\nflowchart TD\n(.*?)^```", page, re.S | re.M)
    arrows = {"-->": set(), "-.->": set()}
    for line in picture.replace("[the method]", "").splitlines():
        starts, arrow, ends = re.split(" (-->|-.->) ", line.strip())
        arrows[arrow].update(itertools.product(starts.split(" & "), ends.split(" & ")))
    down, up = arrows.values()
    found = {(room(path), room(other)) for path, others in IMPORTS.items() for other in others}
    found = {(start, end) for start, end in found if start and end and start != end}
    reached = down
    for _ in picture.splitlines():
        reached = reached | {(start, end) for start, middle in reached for other, end in down if other == middle}
    assert down | up <= found <= reached | up
