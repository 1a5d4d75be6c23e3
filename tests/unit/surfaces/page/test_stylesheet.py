"""The one stylesheet, to which every view adds its rules."""

from perdure.surfaces.web import render


def test_rules_of_a_view_are_not_nested_in_another() -> None:
    depth = 0
    for line in render.read_assets()["page.css"].body.decode().splitlines():
        assert depth == 0 or not line.startswith("/*"), f"a block is open before: {line}"
        depth += line.count("{") - line.count("}")
    assert depth == 0
