#!/usr/bin/env python3
"""Draws docs/pictures/rooms.png: the rooms of the repository, and which imports from which. Prints all imports."""

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "pictures" / "rooms.png"
FOLDERS = [ROOT / name for name in ["benchmarks", "data-prep", "experiments", "maelm_fairseq", "recipes"]]
PACKAGE = ROOT / "maelm_fairseq"
METHOD = "the method"
ROOMS = {  # column and floor in the picture
    "benchmarks": (2, 6),
    "experiments": (2, 5),
    "data-prep": (0, 4),
    "huggingface": (1, 4),
    "recipes": (2, 4),
    "analysis": (3.1, 4),
    "finetuning": (1, 3),
    "hub": (2, 3),
    METHOD: (2, 2),
    "data": (2, 1),
    "cpu_kernels": (3.1, 1),
    "engine": (2, 0),
}
WIDTH, HEIGHT = 0.76, 0.52  # of a box
PROGRAMS, MODULES, DOWN, UP = "#F2F2F2", "#DCEAF5", "#555555", "#D55E00"


@cache
def files():
    """The Python files of the rooms: a set of paths."""
    return {path for folder in FOLDERS for path in folder.rglob("*.py")}


def imported(path):
    """The files of the rooms that a file imports, wherever in it; `from . import x` means x, not the package itself."""
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
                same = files() & {module.with_name(module.name + ".py"), module / "__init__.py"}
                if same:
                    found |= same
                    break
    return found - {path}


def room(path):
    """The room of a file; None for the package's `__init__`, which imports all that registers itself."""
    folder, *below = path.relative_to(ROOT).with_suffix("").parts
    if ROOT / folder != PACKAGE:
        return folder
    if len(below) > 1:
        return below[0]
    own = {"hub": "hub", "cpu_kernels": "cpu_kernels", "effective_rank": "analysis", "__init__": None}
    return own.get(below[0], METHOD)


def room_imports():
    """{room: the others that it imports from, in the order of ROOMS}."""
    found = defaultdict(set)
    for path in files():
        found[room(path)] |= {room(other) for other in imported(path)}
    return {each: [other for other in ROOMS if other in found[each] - {each}] for each in ROOMS}


def goes_up(start, end):
    """Whether an import leads to a higher floor."""
    return ROOMS[end][1] > ROOMS[start][1]


def arrows(imports):
    """Pairs of rooms: all imports that go up, and those that go down unless a longer way down leads there, too."""
    down = {each: [other for other in others if not goes_up(each, other)] for each, others in imports.items()}

    def below(each):
        return {*down[each], *(lower for other in down[each] for lower in below(other))}

    for start, ends in imports.items():
        implied = {lower for end in down[start] for lower in below(end)}
        yield from ((start, end) for end in ends if goes_up(start, end) or end not in implied)


def describe(imports):
    """A line of text for each room; the picture contains it, so that a test sees whether it is up to date."""
    return "\n".join(f"{each}: {', '.join(others) or 'nothing'}" for each, others in imports.items())


def draw(imports):
    from matplotlib import pyplot
    from matplotlib.lines import Line2D
    from matplotlib.patches import FancyBboxPatch, Patch

    pyplot.rcParams["font.size"] = 13
    figure, axis = pyplot.subplots(figsize=(10, 7.6), facecolor="white", layout="constrained")
    axis.set(xlim=(-0.4, 3.5), ylim=(-0.35, 6.35))
    axis.axis("off")
    for each, (x, y) in ROOMS.items():
        inside = [path for path in files() if room(path) == each]
        color = MODULES if PACKAGE in inside[0].parents else PROGRAMS
        style = dict(boxstyle="round,pad=0,rounding_size=0.08", edgecolor=DOWN, facecolor=color)
        axis.add_patch(FancyBboxPatch((x - WIDTH / 2, y - HEIGHT / 2), WIDTH, HEIGHT, **style))
        axis.text(x, y + 0.11, each, ha="center", va="center", weight="bold")
        lines = float(f"{sum(path.read_text(encoding='utf-8').count(chr(10)) for path in inside):.2g}")
        axis.text(x, y - 0.13, f"{lines:,.0f} lines", ha="center", va="center", size=12)
    for start, end in arrows(imports):
        up = goes_up(start, end)
        (x, y), (to_x, to_y) = ROOMS[start], ROOMS[end]
        aside = WIDTH / 4 * max(-1, min(1, to_x - x))
        tail, tip, bend = (x + aside, y - HEIGHT / 2), (to_x - aside, to_y + HEIGHT / 2), "arc3"
        if up:  # at the right of the arrow down
            tail, tip = (x + WIDTH / 4, y + HEIGHT / 2), (to_x + WIDTH / 4, to_y - HEIGHT / 2)
        if to_y - y > 1:  # around the boxes between
            tail, tip, bend = (x - WIDTH / 2, y), (to_x - WIDTH / 2, to_y), "arc3,rad=-0.5"
        style = dict(color=UP if up else DOWN, linestyle="--" if up else "-", linewidth=1.4, shrinkA=0, shrinkB=0)
        arrow = dict(arrowstyle="-|>", mutation_scale=15, connectionstyle=bend, **style)
        axis.annotate("", tip, tail, arrowprops=arrow)
    legend = {
        "programs": Patch(facecolor=PROGRAMS, edgecolor=DOWN),
        "the package maelm_fairseq": Patch(facecolor=MODULES, edgecolor=DOWN),
        "imports; not drawn where\nother arrows lead there": Line2D([], [], color=DOWN),
        "imports from a higher floor": Line2D([], [], color=UP, linestyle="--"),
    }
    axis.legend(legend.values(), legend.keys(), loc="lower left", frameon=False, labelspacing=0.8)
    figure.savefig(PICTURE, dpi=90, metadata={"Description": describe(imports)})


if __name__ == "__main__":
    draw(room_imports())
    print(describe(room_imports()))
