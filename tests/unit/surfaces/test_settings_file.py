"""Single settings change in the text of config.toml; everything else stays."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import config
from perdure.errors import ConfigFault
from perdure.surfaces.cli.settings_file import read_settings, set_values, write_settings

LIVE, WORDS, MODEL = ("live",), ("live", "limits", "words"), ("live", "limits", "all-minilm.l6")
TEXT = '# mine\nagent = "m"  # me\n\n[live]  # quiet\nfloor = true  # a # sign\n\n[hooks]\nlimit_ms = 5\n'


def test_value_is_replaced_in_its_row_and_others_are_added() -> None:
    assert set_values(TEXT, LIVE, {"floor": False, "shadow": True}) == TEXT.replace(
        "[live]  # quiet\nfloor = true  # a", "[live]  # quiet\nshadow = true\nfloor = false  # a"
    )
    assert set_values("", LIVE, {"shadow": True}) == "[live]\nshadow = true\n"
    assert set_values('a = "#"\n', ("a",)[:0], {"a": "b"}) == 'a = "b"\n'


def test_table_without_values_goes() -> None:
    text = set_values(TEXT, MODEL, {"relevance": 0.37})
    assert '[live.limits."all-minilm.l6"]\nrelevance = 0.37\n' in text
    assert tomllib.loads(set_values(text, MODEL, {"relevance": None})) == tomllib.loads(TEXT)


@pytest.mark.parametrize(
    "before",
    ["", TEXT, "live.shadow = false # later\nagent = 'm'\n", "live.floor = true\n",
     "[live.limits.words]\ncoverage=1.0\n",
     '[live]\n"shadow" = false\n', "[hooks]\nlimit_ms = 5\n[live.limits.other]\nrelevance = 0.5\n"],
)  # fmt: skip
def test_every_usual_form_can_be_changed(before: str) -> None:
    after = set_values(set_values(before, LIVE, {"shadow": True}), WORDS, {"relevance": 0.1})
    expected = tomllib.loads(before)
    expected.setdefault("live", {})["shadow"] = True
    expected["live"].setdefault("limits", {}).setdefault("words", {})["relevance"] = 0.1
    assert tomllib.loads(after) == expected
    assert [row for row in before.splitlines() if row.startswith("#") and row not in after] == []
    assert set_values(after, LIVE, {"shadow": True}) == after


@pytest.mark.parametrize("before", ["live = {floor = true}\n", "live = 1\n", "[live\n", '[live]\nshadow = """\na"""\n'])
def test_other_forms_are_refused(before: str) -> None:
    with pytest.raises(ConfigFault):
        set_values(before, LIVE, {"shadow": True})


ROWS = st.lists(
    st.sampled_from(
        ["# c", "", "[live]", "[hooks]", "[live.limits.words]", "shadow = false", "floor = true # x", "limit_ms = 5",
         'text = """', '"""', "live.shadow = true", "[[live]]", "x = '[live]'", "shadow = [", "]"]
    ),
    max_size=9,
).map("\n".join)  # fmt: skip


@given(ROWS)
def test_result_means_what_was_asked_for_or_is_refused(before: str) -> None:
    try:
        after = set_values(before, LIVE, {"shadow": True})
    except ConfigFault:
        return
    expected = tomllib.loads(before)
    expected["live"] = {**expected.get("live", {}), "shadow": True}
    assert tomllib.loads(after) == expected


def test_invalid_setting_is_not_written(tmp_path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(TEXT)
    with pytest.raises(ConfigFault, match=r"live\.shadow"):
        write_settings(tmp_path, {LIVE: {"floor": False, "shadow": "yes"}})
    assert read_settings(tmp_path) == TEXT
    write_settings(tmp_path, {LIVE: {"shadow": True}, WORDS: {"relevance": 0.2}})
    live = config.load(tmp_path).live
    assert live.shadow and live.limits["words"].relevance == 0.2
