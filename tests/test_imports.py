"""The house has floors: each file imports from those below it, and from none above; the page draws it."""

import ast
import graphlib
import itertools
import re

import pytest

from conftest import PLUGIN, ROOT

FOLDERS = [ROOT / name for name in ["benchmarks", "data-prep", "experiments", "maelm_fairseq", "recipes"]]
FILES = {path for folder in FOLDERS for ending in ["*.py", "*.sh"] for path in folder.rglob(ending)}


def modules(names, folders):
    """The files that dotted names mean, the first that exists of each; `x.y` may be y of the module x."""
    for name, folder in itertools.product(names, folders):
        module = folder / name.replace(".", "/")
        yield from FILES & {module.with_name(module.name + ".py"), module / "__init__.py"}


def imported(path):
    """The files that a Python file imports, wherever in it, or names in a string: a program, or a module."""
    tree, used = ast.parse(path.read_text(encoding="utf-8")), set()
    top = next(folder for folder in path.parents if not (folder / "__init__.py").exists())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            used.update(modules([alias.name for alias in node.names], [top, ROOT, *FOLDERS]))
        elif isinstance(node, ast.ImportFrom):
            folders = [path.parents[node.level - 1]] if node.level else [top, ROOT, *FOLDERS]
            names = [node.module, *(f"{node.module or ''}.{alias.name}".strip(".") for alias in node.names)]
            used.update(modules(filter(None, names), folders))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            used.update(named(node.value))
    return used


def named(word):
    """The files that a word, which is no sentence, names: the path of a program, or a module of the package."""
    if re.fullmatch(r"maelm_fairseq(\.\w+)+", word):
        return set(modules([word], [ROOT]))
    same = [path for path in FILES if re.fullmatch(r"[\w/.-]+\.(py|sh)", word) and path.name == word.split("/")[-1]]
    return set(same) if len(same) == 1 else set()


def started(path):
    """The files that a shell script names outside its comments."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")]
    return set().union(*(named(word.lstrip("/")) for word in re.findall(r"[\w/.-]+", "\n".join(lines))))


IMPORTS = {path: (imported(path) if path.suffix == ".py" else started(path)) - {path} for path in FILES}


def part(path):
    """The part of the house that a file is in; None for the package's `__init__`, and the names of commands."""
    folder, *below = path.relative_to(ROOT).with_suffix("").parts
    if ROOT / folder != PLUGIN:
        return folder
    commands = {"__init__": None, "effective_rank": "analysis", "predict": "hub"}
    return commands.get(below[0], below[0]) if len(below) == 1 else below[0]


PARTS = {(part(path), part(other)) for path, others in IMPORTS.items() for other in others}
PARTS = {(start, end) for start, end in PARTS if start and end and start != end}


def test_there_is_no_circle():
    assert sum(map(len, IMPORTS.values())) > 200
    python = {path: others for path, others in IMPORTS.items() if path.suffix == ".py"}
    try:
        graphlib.TopologicalSorter(python).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(str(path.relative_to(ROOT)) for path in error.args[1]))


def test_the_page_draws_what_imports_from_what():
    """An arrow stands for all that it leads to, and leads down: there is no circle of arrows."""
    page, below = (ROOT / "docs/architecture.md").read_text(encoding="utf-8"), {}
    (picture,) = re.findall(r"^```mermaid\nflowchart TD\n(.*?)^```", page, re.S | re.M)
    for line in picture.splitlines():
        starts, ends = line.strip().split(" --> ")
        for start in starts.split(" & "):
            below.setdefault(start, set()).update(ends.split(" & "))
    graphlib.TopologicalSorter(below).prepare()
    arrows = reached = {(start, end) for start, ends in below.items() for end in ends}
    for _ in below:
        reached = reached | {(start, end) for start, middle in reached for other, end in arrows if other == middle}
    assert arrows <= PARTS, arrows - PARTS
    assert PARTS <= reached, [
        f"{path.relative_to(ROOT)} -> {other.relative_to(ROOT)}"
        for path, others in IMPORTS.items() for other in others if (part(path), part(other)) in PARTS - reached
    ]  # fmt: skip


def test_no_part_imports_from_a_floor_above_its_own():
    """The floors are those of the page, where each part has one."""
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    floors = {}
    for number, parts in re.findall(r"^\| ([0-9]+) \| (.*) \|$", page, re.M):
        for name in re.findall(r"\[`([\w-]+)/?`\]", parts):
            assert name not in floors
            floors[name] = int(number)
    assert floors.keys() == {name for pair in PARTS for name in pair}
    upwards = [(start, end) for start, end in PARTS if floors[start] < floors[end]]
    assert upwards == []


def test_no_two_programs_have_one_name():
    """The tests import them by name."""
    names = [path.stem for path in FILES if path.suffix == ".py" and PLUGIN not in path.parents]
    assert {name for name in names if names.count(name) > 1} == set()
