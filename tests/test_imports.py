"""Imports go one way: no two modules import each other, at any depth, not even inside functions."""

import graphlib
import sys

import pytest

from conftest import ROOT

sys.path.insert(0, str(ROOT / "docs"))
import draw_rooms  # noqa: E402


def test_there_is_no_circle():
    edges = {path: draw_rooms.imported(path) for path in draw_rooms.files()}
    for folder in [*draw_rooms.FOLDERS, ROOT / "recipes" / "evaluation"]:
        inside = [path for path in edges if folder in path.parents]
        assert sum(len(edges[path].intersection(inside)) for path in inside) > 5, folder
    try:
        graphlib.TopologicalSorter(edges).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(str(path.relative_to(ROOT)) for path in error.args[1]))


def test_these_rooms_alone_import_from_a_higher_floor():
    imports = draw_rooms.room_imports()
    up = {(start, end) for start in imports for end in imports[start] if draw_rooms.goes_up(start, end)}
    assert up == {("data", "the method"), ("engine", "the method"), ("engine", "data")}
