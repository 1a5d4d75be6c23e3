"""Who may see what, in a browser: people and what they share, the rule behind a mark, a note that is accepted."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.sharing.grants import BEGINNING

PEOPLE = "ada bob carol dan eve frank grace heidi ivan judy".split()
SETTINGS = 'machine = "laptop"\nuser = "mira"\n[server]\nhttp = "127.0.0.1:0"\nrequests_per_minute = 100000\n'


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A company of three teams and 55 people."""
    place = tmp_path_factory.mktemp("company") / "home"
    place.mkdir(mode=0o700)
    (place / "config.toml").write_text(SETTINGS)
    with perdure.open(place, user="mira") as home:
        home.remember("I like apples", path="user/fruit")
        teams = home.sharing.teams
        for name, members in (("orchard", PEOPLE[:5]), ("harbour", ["mira", *PEOPLE[3:8]]), ("board", ["mira", "ada"])):
            teams.set_rule(name, keeps=name != "board")
            for member in members:
                teams.add(name, member, is_reviewer=member == "mira")
        for number in range(45):
            home.sharing.machines.register(f"guest{number:02}", "phone")
    until_at = datetime(2027, 1, 31, tzinfo=UTC)
    for user, grantee, scope, value, how in (
        ("ada", "@orchard", "project", "/home/ada/src/orchard", {}),
        ("bob", "@orchard", "project", "/home/bob/orchard", {"since_at": BEGINNING}),
        ("dan", "@harbour", "project", "/home/dan/harbour-office", {}),
        ("carol", "ivan", "tag", "tides", {"until_at": until_at}),
        ("mira", "@board", "agent", "gardener", {}),
    ):
        with perdure.open(place, user=user) as home:
            home.sharing.share(grantee, scope, value, **how)  # type: ignore[arg-type]
    with perdure.open(place, user="dan") as home:
        memory = home.remember("The harbour office opens at nine", path="harbour/hours")
        home.sharing.share("@harbour", "memory", memory.memory_id)
    return place


def test_every_right_leads_to_its_rule(visit: Any) -> None:
    page = visit("/sharing/access")
    heads = page.locator("thead th").all_inner_texts()
    assert [" ".join(head.split()) for head in heads] == [
        "Person", "private everything else", "project harbour-office", "project orchard", "agent gardener", "tag tides",
    ]  # fmt: skip
    row = page.locator("tbody tr", has=page.locator("th strong", has_text="ada"))
    assert row.locator("td").nth(2).locator("a").all_inner_texts() == ["shares", "reads"]
    assert "of bob, through team orchard" in row.inner_text() and "only ada" in row.inner_text()
    row.locator("td").nth(2).get_by_role("link", name="reads").click()
    assert "bob shares project" in page.locator("main").inner_text()
    assert "added by mira" in page.locator("main").inner_text()
    page.get_by_role("link", name="the team orchard").click()
    assert page.locator("h1").inner_text() == "Team orchard"


def test_many_people_are_found_and_listed_in_parts(visit: Any) -> None:
    page = visit("/sharing/access")
    assert page.locator("tbody tr").count() == 40
    page.get_by_role("link", name="Next people").click()
    page.wait_for_load_state()
    assert page.locator("tbody tr").count() == 15
    page.get_by_label("Find a person or a shared thing").fill("guest07")
    page.get_by_role("button", name="Find").click()
    page.wait_for_load_state()
    assert page.locator("tbody th strong").all_inner_texts() == ["guest07"]
    page.goto("/sharing/access?q=harbour")
    assert page.locator("thead th").count() == 3 and page.locator("tbody tr").count() == 40


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_picture_is_readable_on_a_screen_and_a_phone(visit: Any, width: int, scheme: str, tmp_path: Path) -> None:
    page = visit("/sharing/access", color_scheme=scheme, viewport={"width": width, "height": 900})
    page.screenshot(path=tmp_path / f"access-{width}.png")
    for place in ("document.querySelector('main')", "document.documentElement"):  # only the table itself scrolls
        assert page.evaluate(f"{place}.scrollWidth <= innerWidth")
    page.locator(".access").evaluate("place => { place.scrollLeft = 10000 }")
    assert page.locator("tbody th strong").first.is_visible()
    box = page.locator("tbody th strong").first.bounding_box()
    assert box is not None and 0 <= box["x"] < width


def test_reviewer_accepts_a_note(visit: Any, site: Any) -> None:
    page = visit("/sharing/notes")
    assert "proposed" in page.locator(".list").inner_text()
    page.get_by_role("button", name="Accept").click()
    assert "its team reads it from now on" in page.locator("[role=status]").inner_text()
    assert "accepted by mira" in page.locator(".list").inner_text()
    with perdure.open(site.home, user="eve") as eve:
        texts = [hit.memory.text for hit in eve.memories.search("harbour office")]
    assert texts == ["The harbour office opens at nine"]


def test_admin_adds_and_removes_a_member(visit: Any) -> None:
    page = visit("/sharing/teams/board")
    page.get_by_label("User").fill("judy")
    page.get_by_role("button", name="Add").click()
    assert "no user judy yet" in page.get_by_role("alert").inner_text()  # she has no machine and no data here
    page.get_by_label("Add them anyway").check()
    page.get_by_role("button", name="Add").click()
    assert "judy is a member of board." in page.locator("[role=status]").inner_text()
    page.get_by_role("button", name="Remove judy").click()
    assert "judy is no member of board any more." in page.locator("[role=status]").inner_text()
