"""The picture in the README, and the names of code in the documentation."""

import re

import draw_idea

from conftest import ROOT


def test_the_program_draws_the_picture(tmp_path, monkeypatch):
    monkeypatch.setattr(draw_idea, "PICTURE", tmp_path / "idea.png")
    draw_idea.main()
    assert (tmp_path / "idea.png").read_bytes().startswith(b"\x89PNG")


def test_pages_name_what_exists():
    """test_pages.py looks for the files."""
    architecture, contributing = ((ROOT / page).read_text() for page in ("docs/architecture.md", "CONTRIBUTING.md"))
    links = re.findall(r"((?:`[\w.]+`(?:, | and )?)+) in \[[^]]*\]\(([^)]+\.py)\)", architecture)
    named = [(name, f"docs/{path}") for names, path in links for name in re.findall(r"[\w.]+(?=`)", names)]
    named += [each[::-1] for each in re.findall(r"`([\w/-]+/[\w.-]+\.py)` \(`(\w+)[`(.]", contributing)]
    assert len(named) > 30
    for name, path in named:
        code = (ROOT / path).read_text(encoding="utf-8")
        for part in name.split("."):
            assert re.search(rf"^ *(?:class|def) {part}\b|^{part} = ", code, re.M), (name, path)
