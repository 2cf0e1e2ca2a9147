"""The pictures of docs/, and the names on its page about the architecture."""

import re
import sys

from PIL import Image

from conftest import ROOT

sys.path.insert(0, str(ROOT / "docs"))
import draw_idea  # noqa: E402
import draw_rooms  # noqa: E402


def test_the_programs_draw(tmp_path, monkeypatch):
    monkeypatch.setattr(draw_idea, "PICTURE", tmp_path / "idea.png")
    monkeypatch.setattr(draw_rooms, "PICTURE", tmp_path / "rooms.png")
    draw_idea.main()
    draw_rooms.draw(draw_rooms.room_imports())
    assert {path.name for path in tmp_path.iterdir()} == {"idea.png", "rooms.png"}


def test_the_picture_of_the_rooms_is_up_to_date():
    assert {draw_rooms.room(path) for path in draw_rooms.files()} == {*draw_rooms.ROOMS, None}
    drawn = Image.open(draw_rooms.PICTURE).text["Description"]
    assert drawn == draw_rooms.describe(draw_rooms.room_imports()), "run `python docs/draw_rooms.py`"


def test_the_page_names_what_exists():
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    found = re.findall(r"((?:`[\w.]+`(?:, | and )?)+) in \[[^]]*\]\(([^)]+\.py)\)", page)
    named = [(name, path) for names, path in found for name in re.findall(r"[\w.]+(?=`)", names)]
    assert len(named) > 25
    for name, path in named:
        code = (ROOT / "docs" / path).read_text(encoding="utf-8")
        for part in name.split("."):
            assert re.search(rf"^ *(?:class|def) {part}\b", code, re.M), (name, path)
