"""The code is built in levels, as docs/architecture.md draws: no part imports from one above it.

Beyond that, files do not import each other in a circle.
"""

import ast
import graphlib
import itertools
import re

import pytest

from conftest import PLUGIN, ROOT

FOLDER_NAMES = ["benchmarks", "data-prep", "experiments", "maelm_fairseq", "recipes"]
FOLDERS = [ROOT / name for name in FOLDER_NAMES]
FILES = {path for folder in FOLDERS for ending in ["*.py", "*.sh"] for path in folder.rglob(ending)}


def modules(names, folders):
    """The files that dotted names may mean, in any of the folders.

    `x.y` may be a file `y` in the package `x`, or something in the module `x`.
    """
    for name, folder in itertools.product(names, folders):
        module = folder / name.replace(".", "/")
        yield from FILES & {module.with_name(module.name + ".py"), module / "__init__.py"}


def imported(path):
    """The files that a Python file imports, anywhere in it, or names in a string."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    top = next(folder for folder in path.parents if not (folder / "__init__.py").exists())
    used = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            used.update(modules(names, [top, ROOT, *FOLDERS]))
        elif isinstance(node, ast.ImportFrom):
            folders = [path.parents[node.level - 1]] if node.level else [top, ROOT, *FOLDERS]
            package = node.module or ""
            names = [f"{package}.{alias.name}".strip(".") for alias in node.names]
            if package:
                names.append(package)
            used.update(modules(names, folders))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            used.update(named(node.value))
    return used


def named(word):
    """The files that a single word names: the path of a program, or a module of the package."""
    if re.fullmatch(r"maelm_fairseq(\.\w+)+", word):
        return set(modules([word], [ROOT]))
    if not re.fullmatch(r"[\w/.-]+\.(py|sh)", word):
        return set()
    name = word.split("/")[-1]
    namesakes = {path for path in FILES if path.name == name}
    return namesakes if len(namesakes) == 1 else set()


def started(path):
    """The files that a shell script names outside its comments."""
    lines = path.read_text(encoding="utf-8").splitlines()
    code = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    words = re.findall(r"[\w/.-]+", code)
    return set().union(*(named(word.lstrip("/")) for word in words))


def used_by(path):
    """The other files that a file uses."""
    used = imported(path) if path.suffix == ".py" else started(path)
    return used - {path}


IMPORTS = {path: used_by(path) for path in FILES}


def part(path):
    """The part of the code that a file belongs to; None for the package's `__init__`."""
    folder, *below = path.relative_to(ROOT).with_suffix("").parts
    if ROOT / folder != PLUGIN:
        return folder
    if len(below) > 1:
        return below[0]
    # Modules that users run are named after the command, not after the part that they belong to.
    commands = {"__init__": None, "effective_rank": "analysis", "predict": "hub"}
    return commands.get(below[0], below[0])


def parts_that_import():
    """Pairs of parts, of which the first imports from the second."""
    pairs = set()
    for path, others in IMPORTS.items():
        pairs.update((part(path), part(other)) for other in others)
    return {(start, end) for start, end in pairs if start and end and start != end}


PARTS = parts_that_import()


def test_there_is_no_circle():
    assert sum(map(len, IMPORTS.values())) > 200
    python = {path: others for path, others in IMPORTS.items() if path.suffix == ".py"}
    try:
        graphlib.TopologicalSorter(python).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(str(path.relative_to(ROOT)) for path in error.args[1]))


def test_the_page_draws_what_imports_from_what():
    """An arrow stands for everything that can be reached along it, and arrows form no circle."""
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    (picture,) = re.findall(r"^```mermaid\nflowchart TD\n(.*?)^```", page, re.S | re.M)
    below = {}
    for line in picture.splitlines():
        starts, ends = line.strip().split(" --> ")
        for start in starts.split(" & "):
            below.setdefault(start, set()).update(ends.split(" & "))
    graphlib.TopologicalSorter(below).prepare()
    arrows = {(start, end) for start, ends in below.items() for end in ends}
    assert arrows <= PARTS, arrows - PARTS
    missing = PARTS - reachable(below)
    assert not missing, files_between(missing)


def reachable(below):
    """All pairs of a part and one that arrows lead to from it, directly or by way of others."""
    pairs = set()
    for start in below:
        ahead = list(below[start])
        while ahead:
            end = ahead.pop()
            if (start, end) not in pairs:
                pairs.add((start, end))
                ahead.extend(below.get(end, ()))
    return pairs


def files_between(pairs):
    """The imports, file by file, that make up these pairs of parts."""
    imports = []
    for path, others in IMPORTS.items():
        for other in others:
            if (part(path), part(other)) in pairs:
                imports.append(f"{path.relative_to(ROOT)} -> {other.relative_to(ROOT)}")
    return imports


def test_no_part_imports_from_a_level_above_its_own():
    """The page lists all parts by level, each of them once."""
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    levels = {}
    for number, parts in re.findall(r"^\*\*([0-9]+): .*\n((?:- .*\n)+)", page, re.M):
        for name in re.findall(r"\[`([\w-]+)/?`\]", parts):
            assert name not in levels
            levels[name] = int(number)
    assert levels.keys() == {name for pair in PARTS for name in pair}
    upwards = [(start, end) for start, end in PARTS if levels[start] < levels[end]]
    assert upwards == []


def test_no_two_programs_have_one_name():
    """The tests import them by name."""
    names = [path.stem for path in FILES if path.suffix == ".py" and PLUGIN not in path.parents]
    assert {name for name in names if names.count(name) > 1} == set()


def test_nothing_imports_from_a_file_of_tests():
    importing = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        importing += re.findall(r"^(?:from|import) test_\w+", path.read_text(), flags=re.M)
    assert importing == []
