"""The one stylesheet, to which every view adds its rules."""

from perdure.surfaces.page import assets


def test_the_rules_of_a_view_stand_in_no_condition_of_another() -> None:
    depth = 0
    for line in assets.files()["page.css"].body.decode().splitlines():
        assert depth == 0 or not line.startswith("/*"), f"a block is open before: {line}"
        depth += line.count("{") - line.count("}")
    assert depth == 0
