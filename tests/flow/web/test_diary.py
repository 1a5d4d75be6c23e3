"""The diary as its owner reads it, and has it written."""

import time
from datetime import UTC, datetime

import pytest

import perdure
from perdure.floor.layers import to_diary_day
from perdure.types import Span

_WAIT_S = 30.0


def until(visitor, path, holds):
    """What stands at an address once it is as wanted."""
    ends_s = time.monotonic() + _WAIT_S
    while not holds(seen := visitor.get(path)) and time.monotonic() < ends_s:
        time.sleep(0.1)
    return seen


def a_run(home):
    """A run with what a person said in it: (its id, where its first turn stands)."""
    view = next(node.run for node in home.runs.forest(limit=50) if node.run.n_user)
    return view, Span(view.run_id, view.from_offset, view.to_offset)


@pytest.fixture
def visitor(house):
    """The owner of a home with two pages in its diary, one of them made of a run."""

    def prepare(home):
        _, span = a_run(home)
        home.floor.write("diary/2026-03-04", "# Dear next one\n\nThe *door* is painted.", by="model", sources=[span])
        home.floor.write("diary/2026-02-27", "A quiet day.<script>alert(1)</script>")

    return house(prepare=prepare).visitor()


def test_newest_diary_page_is_shown_with_its_runs(visitor):
    seen = visitor.get("/diary")
    assert "4 March 2026" in seen.text("h2") and seen.text("article em") == "door"
    assert "a model" in seen.text(".meta")
    with perdure.open(visitor.home, user="ada", read_only=True) as home:
        view, _ = a_run(home)
        (link,) = seen.links(".diary-page .list a")
        assert (
            link.startswith(f"/runs/{view.run_id}?at=")
            and home.runs.locate_turn(link.partition("at=")[2])[0] == view.run_id
        )


def test_the_calendar_leads_to_each_page_and_to_other_months(visitor):
    march = visitor.get("/diary")
    assert march.text(".calendar [aria-current]") == "4" and march.text(".diary-days strong") == "March 2026"
    february = visitor.get(march.links(".diary-days > .row a")[0])
    written = february.tree.css(".calendar a:not(.unwritten)")
    assert [node.text() for node in written] == ["27"]
    seen = visitor.get(written[0].attributes["href"])
    assert "27 February 2026" in seen.text("h2") and "<script>alert" not in seen.html


def test_day_without_a_page_gives_advice(visitor):
    seen = visitor.get("/diary?day=2026-01-02")
    assert "No page for this day" in seen.text(".diary-page .empty")
    assert "models.roles.summariser" in seen.text(".diary-page")  # rules write, as no model is set
    assert "/floor/diary/2026-01-02/edit" in seen.links(".diary-page a")
    assert "in the future" in visitor.get("/diary?day=2999-01-02").text(".diary-page .empty")


def test_diary_page_is_written_from_the_turns_of_that_day(visitor):
    with perdure.open(visitor.home, user="ada", read_only=True) as home:
        view, _ = a_run(home)
        day = to_diary_day((view.ended_at or view.captured_at).astimezone()).isoformat()
    begun = visitor.post("/diary/write", day=day)
    assert "Writing has started" in begun.text("[role=status]")
    seen = until(visitor, f"/diary?day={day}", lambda found: found.tree.css(".diary-page article"))
    assert "rules" in seen.text(".diary-page .meta") and seen.links(".diary-page .list a")
    told = until(visitor, "/diary", lambda found: "last try" in found.text(".diary-page"))
    assert f"{day}: written" in told.text(".diary-page")


def test_day_without_turns_is_reported(visitor):
    visitor.post("/diary/write", day="2026-01-02")
    seen = until(visitor, "/diary?day=2026-01-02", lambda found: "no messages on that day" in found.text(".diary-page"))
    assert "no messages on that day" in seen.text(".diary-page .meta")


def test_recent_page_is_updated_from_the_diary_view(visitor):
    assert "Nothing yet" in visitor.get("/diary").text("#recent .empty")
    visitor.post("/diary/recent")
    seen = until(visitor, "/diary", lambda found: "rules" in " ".join(found.texts("#recent .meta")))
    assert "rules" in seen.text("#recent .meta")


def test_another_user_writes_their_own_diary(house):
    home = house()
    bob = home.let_in()
    bob.post("/diary/write", day="2026-01-02")
    assert "no messages on that day" in until(bob, "/diary", lambda seen: "last try" in seen.text(".diary-page")).text()
    assert "no messages on that day" not in home.visitor().get("/diary").text(".diary-page")


def test_page_removed_by_its_owner_stays_removed(visitor):
    visitor.post("/floor/diary/2026-03-04/remove")
    seen = visitor.get("/diary?day=2026-03-04")
    assert "You removed this page" in seen.text(".empty") and not seen.tree.css(".diary-page form[action$=write]")


def test_invalid_day_is_refused_with_a_message(visitor):
    for path in ("/diary?day=soon", "/diary?day=2026-02-30", "/diary?day=9999-12-31", "/diary?day=0001-01-01"):
        assert visitor.get(path).status == 400, path
    assert visitor.get("/diary?day=2026-03-04&month=nonsense").status == 200
    assert visitor.post("/diary/write", day="soon").status == 400


def test_today_is_marked(visitor):
    today = to_diary_day(datetime.now(UTC).astimezone())
    seen = visitor.get(f"/diary?day={today.isoformat()}")
    assert seen.text(".calendar .today") == str(today.day) and "today" in seen.text(".diary-page h2")


def test_recent_page_keeps_its_lines_and_links_each_session(visitor):
    visitor.post("/diary/recent")
    seen = until(visitor, "/diary", lambda found: found.tree.css("#recent article"))
    assert seen.tree.css("#recent article br") and "written by rules" in seen.text("#recent .meta")
    links = [link for link in seen.links("#recent article a") if link.startswith("/runs/")]
    with perdure.open(visitor.home, user="ada", read_only=True) as home:
        runs = [home.runs.get(link.rpartition("/")[2]) for link in links]
        assert {run.run_id for run in runs} == {home.runs.conversation(run.conversation)[0].run_id for run in runs}
    assert len(links) == seen.html.partition('id="recent"')[2].count("<strong>20") > 1
