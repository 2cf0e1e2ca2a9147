"""The picture in the README, and the names on the page about the architecture."""

import re
import sys

from conftest import ROOT

sys.path.insert(0, str(ROOT / "docs"))
import draw_idea  # noqa: E402


def test_the_program_draws_the_picture(tmp_path, monkeypatch):
    monkeypatch.setattr(draw_idea, "PICTURE", tmp_path / "idea.png")
    draw_idea.main()
    assert (tmp_path / "idea.png").read_bytes().startswith(b"\x89PNG")


def test_the_page_names_what_exists():
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    found = re.findall(r"((?:`[\w.]+`(?:, | and )?)+) in \[[^]]*\]\(([^)]+\.py)\)", page)
    named = [(name, path) for names, path in found for name in re.findall(r"[\w.]+(?=`)", names)]
    assert len(named) > 25
    for name, path in named:
        code = (ROOT / "docs" / path).read_text(encoding="utf-8")
        for part in name.split("."):
            assert re.search(rf"^ *(?:class|def) {part}\b", code, re.M), (name, path)
