"""Which names are pages, who may write them, and what they may hold."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.errors import EditRefused, NotFound
from perdure.floor import pages
from perdure.floor.pages import PageEdit

SKILL = "---\nname: a\ndescription: d\n---\nDo it so."
LONG = "You are Jarvis. Name your sources, run the tests, and ask before you push anything to a place that others use."
SETTINGS = "name: jarvis\ntools: [shell, read]\nmax_turns: 8\n"


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("notes", "notes.md"),
        ("notes.md", "notes.md"),
        ("agent", "agent.yaml"),
        ("agent.yaml", "agent.yaml"),
        ("diary/2026-11-21", "diary/2026-11-21.md"),
        ("skills/release-notes/SKILL.md", "skills/release-notes/SKILL.md"),
    ],
)
def test_page_may_be_named_without_its_suffix(name, page):
    assert pages.resolve_name(name) == page


@pytest.mark.parametrize(
    "name",
    [
        "", "/etc/passwd", "/notes.md", "../notes.md", "notes.md/..", "./notes.md", "diary/../notes.md", "NOTES.md",
        "diary/2026-11-21/../../x.md", "diary/2026-1-1.md", "diary/2026-13-40", "diary/2026-02-29", "diary/0000-01-01",
        "diary/2026-11-21.md\n", "notes.md\0", "skills/SKILL.md",
        "skills/../SKILL.md", "skills/a/b/SKILL.md", "skills/-a/SKILL.md", "skills/a/README.md", ".lock", "notes.md ",
        "agents/default/notes.md", f"skills/{'a' * 65}/SKILL.md", "~/notes.md", "notes.txt",
    ],
)  # fmt: skip
def test_no_other_name_is_a_page(name):
    with pytest.raises(NotFound):
        pages.resolve_name(name)


@settings(deadline=None)
@given(st.text(max_size=40))
def test_page_name_stays_below_its_folder(name):
    """Every name that passes has no root, no step up, no empty part and no byte that a path cannot have."""
    try:
        found = pages.resolve_name(name)
    except NotFound:
        return
    parts = found.split("/")
    assert not found.startswith("/") and "\0" not in found and not {"", ".", ".."} & set(parts)


def test_agents_of_other_users_have_a_place_of_their_own():
    """The owner's pages lie under the agent's name; nobody's names leave agents/ or meet another's."""
    places = {
        str(pages.to_agent_folder(agent, user, "ada"))
        for agent in ("default", "..", "a/b", "a~b")
        for user in ("ada", "bo", "../x")
    }
    assert len(places) == 12 and str(pages.to_agent_folder("default", "ada", "ada")) == "agents/default"
    assert all(place.startswith("agents/") and ".." not in place.split("/") for place in places)
    assert all(place.count("/") == 1 for place in places)


@pytest.mark.parametrize("by", ["agent", "model", "rules"])
@pytest.mark.parametrize("is_proposal", [False, True])
def test_profile_belongs_to_its_owner(by, is_proposal):
    with pytest.raises(EditRefused, match="only the owner"):
        pages.check_edit(PageEdit(pages.PROFILE, "Ada likes tea", by, is_proposal=is_proposal))
    pages.check_edit(PageEdit(pages.PROFILE, "Ada likes tea", "hand"))


@pytest.mark.parametrize("by", ["agent", "model", "rules"])
@pytest.mark.parametrize(
    ("name", "text"), [("system.md", LONG), ("agent.yaml", SETTINGS), ("skills/a/SKILL.md", SKILL)]
)
def test_protected_page_can_only_be_proposed(by, name, text):
    with pytest.raises(EditRefused, match="proposal"):
        pages.check_edit(PageEdit(name, text, by))
    pages.check_edit(PageEdit(name, text, by, is_proposal=True))
    pages.check_edit(PageEdit(name, text, "owner"))


@pytest.mark.parametrize("by", ["owner", "agent"])
@pytest.mark.parametrize("text", ["", " \n\t\n", "a\0b", "half \ud800 a pair", "x" * (pages.MAX_BYTES + 1)])
def test_invalid_text_is_refused_from_everybody(by, text):
    with pytest.raises(EditRefused):
        pages.check_edit(PageEdit("notes.md", text, by))


def test_the_most_bytes_are_counted_as_they_are_written():
    """262,144 bytes: 131,072 letters of two bytes fit, and one more does not."""
    pages.check_edit(PageEdit("notes.md", "é" * 131_072, "owner"))
    with pytest.raises(EditRefused, match="262146 bytes"):
        pages.check_edit(PageEdit("notes.md", "é" * 131_073, "owner"))


def test_a_proposed_system_prompt_is_neither_short_nor_bloated():
    """Row J27: at least 100 characters, at most three times what it replaces (which counts as 100 at least)."""
    propose = {"by": "agent", "is_proposal": True}
    pages.check_edit(PageEdit("system.md", "x" * 100, **propose))
    with pytest.raises(EditRefused, match="at least 100"):
        pages.check_edit(PageEdit("system.md", " " * 50 + "x" * 99, **propose))
    pages.check_edit(PageEdit("system.md", "x" * 600, old="y" * 200, **propose))
    with pytest.raises(EditRefused, match="3 times"):
        pages.check_edit(PageEdit("system.md", "x" * 601, old="y" * 200, **propose))
    pages.check_edit(PageEdit("system.md", "x" * 300, old="short", **propose))
    pages.check_edit(PageEdit("system.md", "brief", "owner", "y" * 200))  # an owner writes what they like


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("name: [", "not YAML"),
        ("- a\n- b", "not a mapping"),
        ("tools: []\nmax_turns: 3", "lacks name"),
        ("name: a\nmax_turns: 3", "lacks tools"),
        ("name: a\ntools: []", "lacks max_turns"),
        ("name: ''\ntools: []\nmax_turns: 3", "`name`"),
        ("name: a\ntools: shell\nmax_turns: 3", "`tools`"),
        ("name: a\ntools: [1]\nmax_turns: 3", "`tools`"),
        ("name: a\ntools: []\nmax_turns: 0", "`max_turns`"),
        ("name: a\ntools: []\nmax_turns: true", "`max_turns`"),
        ("name: !!python/object/apply:os.system ['true']\ntools: []\nmax_turns: 3", "not YAML"),
    ],
)
def test_settings_are_checked_for_every_writer(text, why):
    """Row J28."""
    for by in ("owner", "agent"):
        with pytest.raises(EditRefused, match=why):
            pages.check_edit(PageEdit("agent.yaml", text, by, is_proposal=by == "agent"))
    pages.check_edit(PageEdit("agent.yaml", SETTINGS, "owner"))


def test_secrets_are_refused_by_kind_and_not_repeated():
    with pytest.raises(EditRefused) as refused:
        pages.check_edit(PageEdit("notes.md", "the key is AKIAIOSFODNN7EXAMPLE", "owner"))
    assert "AKIAIOSFODNN7EXAMPLE" not in str(refused.value) and "secret (" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 60_000, "16384 bytes"),
        ("[" * 16_000, "50 levels"),
        ("{" * 16_000, "50 levels|not YAML"),
        ("{a: " * 4_000, "50 levels"),
        ("- " * 8_000, "50 levels"),
        ("? " * 8_000, "50 levels"),
        ("\n".join(" " * n + "a:" for n in range(150)), "50 levels"),
        ("a: &a {k: 1}\n" + "".join(f"b{n}: &a {{<<: [*a, *a, *a]}}\n" for n in range(30)), "10 aliases"),
        ("name: 2026-13-40", "not YAML"),
    ],
)
def test_settings_cannot_take_the_process_down(text, why):
    """Sixty thousand brackets ended it: a loader nests as deep as its text."""
    with pytest.raises(EditRefused, match=why):
        pages.check_edit(PageEdit("agent.yaml", text, "owner"))


KEY, OTHER = "AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLF"


def test_secret_written_by_a_person_does_not_block_later_notes():
    old = f"- the key is {KEY}\n"
    pages.check_edit(PageEdit("notes.md", f"{old}- tabs, never spaces\n", "agent", old))
    with pytest.raises(EditRefused, match=r"secret \("):
        pages.check_edit(PageEdit("notes.md", f"{old}- the other is {OTHER}\n", "agent", old))


def test_the_reason_for_an_edit_holds_no_secret():
    with pytest.raises(EditRefused, match="reason") as refused:
        pages.check_edit(PageEdit("system.md", LONG, "agent", is_proposal=True, why=f"the key is {KEY}"))
    assert KEY not in str(refused.value)
