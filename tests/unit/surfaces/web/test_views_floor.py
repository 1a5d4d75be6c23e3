"""What the views of the floor decide, without a home."""

from datetime import date

from perdure.access.scan import Finding
from perdure.config import FloorConfig
from perdure.floor.layers import Layer, Layers, Suspect, get_budget
from perdure.floor.state import FloorCard
from perdure.surfaces.web.views import diary, floor, floor_pages
from perdure.surfaces.web.views import floor as floor_lists


def card(name, project=None):
    return FloorCard(name, f"words of {name}", "2026-03-01T09:30:00.000Z#0000", "owner", project)


def of_cards(n_left, *suspected):
    found = tuple(Suspect(name, "order", Finding("override", "order", 0.9)) for name in suspected)
    return Layers((Layer("cards", "", "journal", "", n_left=n_left, suspects=found),))


def test_the_oldest_cards_of_a_session_leave_first():
    """Five cards; b is held back and d is of another project, so that of a, c, e the oldest two are a and c."""
    cards = [card("a"), card("b"), card("c", "/p"), card("d", "/other"), card("e")]
    assert floor_lists.find_evicted(cards, of_cards(2, "b"), "/p") == {"a", "c"}
    assert floor_lists.find_evicted(cards, of_cards(0), "/p") == set()


def test_layer_has_its_whole_budget():
    """recent.md may have a fifth more than 1,000; the diary has two pages of 300."""
    budgets = FloorConfig(overall_tokens=1000, diary_tokens=300)
    assert get_budget("overall", budgets) == 1200
    assert floor.to_layer_values(Layer("overall", "", "recent.md", ""), budgets)["budget"] == 1200
    assert floor.to_layer_values(Layer("diary", "", "diary/", ""), budgets)["budget"] == 600


def test_each_layer_links_to_its_editor():
    found = {name: floor.to_layer_values(Layer(name, "", source, ""), FloorConfig())["href"] for name, source in (
        ("core", "core.md"), ("insights", "journal"), ("cards", "journal"), ("diary", "diary/"))}  # fmt: skip
    assert found == {
        "core": "/floor/core", "insights": "/memories?kind=insight", "cards": "/floor/cards", "diary": "/diary",
    }  # fmt: skip


def test_pages_have_a_name_for_people():
    names = ("system.md", "diary/2026-11-21.md", "skills/release/SKILL.md")
    assert [floor_pages.to_label(name) for name in names] == ["System prompt", "Diary of 2026-11-21", "Skill release"]
    assert floor_pages.to_url("skills/release/SKILL.md", "edit") == "/floor/skills/release/SKILL/edit"


def test_the_weeks_of_a_month():
    """November 2026 begins on a Sunday: its first week has the 26th of October, its last the 6th of December."""
    shown, today = date(2026, 11, 21), date(2026, 11, 22)
    found = diary.build_weeks(date(2026, 11, 1), {date(2026, 11, 20)}, shown=shown, today=today)
    assert len(found) == 6 and all(len(week) == 7 for week in found)
    assert (found[0][0].day, found[-1][-1].day) == (date(2026, 10, 26), date(2026, 12, 6))
    days = {one.day: one for week in found for one in week}
    assert [d for d, one in days.items() if one.is_written] == [date(2026, 11, 20)]
    assert [d for d, one in days.items() if one.is_shown] == [shown]
    assert [d for d, one in days.items() if one.is_today] == [today]
    assert days[date(2026, 11, 23)].is_to_come and not days[today].is_to_come
    assert days[date(2026, 10, 31)].is_other_month and not days[date(2026, 11, 1)].is_other_month


def test_only_diary_pages_are_days():
    assert diary.list_days(["notes.md", "diary/2026-11-21.md", "skills/a/SKILL.md"]) == {date(2026, 11, 21)}
