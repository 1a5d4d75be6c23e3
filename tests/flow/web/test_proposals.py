"""What could be tidied up: shown beside what would become of it, applied as ticked, and taken back."""

from datetime import UTC, datetime, timedelta

import pytest

import perdure

NOW = datetime.now(UTC)


@pytest.fixture
def visitor(house):
    """The owner of a home in which two memories say the same, two contradict each other, and one says two things."""

    def prepare(home):
        home.remember("Run make check before each commit.", path="harbour/commit", stated_at=NOW - timedelta(days=9))
        home.remember("Before each commit run make check.", path="harbour/before", stated_at=NOW - timedelta(days=2))
        home.remember("The office is in Kiel and the boat is called Mathilda.", path="user/office")

    return house(prepare=prepare).visitor()


def believed(visitor):
    with perdure.open(visitor.home, user="ada", read_only=True) as home:
        return {memory.text for memory in home.memories.list_memories()}


def test_proposals_page_loads_at_once_and_fetches_the_proposals(visitor):
    seen = visitor.get("/proposals")
    assert "Looking through" in seen.text("#found") and "/proposals/found" in seen.links()
    assert seen.tree.css_first("#found").attributes["hx-get"] == "/proposals/found"


def test_proposal_shows_before_and_after(visitor):
    seen = visitor.get("/proposals/found")
    now, then = seen.texts(".belief-sides section")[:2]
    assert "Run make check before each commit." in now and "Before each commit run make check." in now
    assert "retired" in now and "Run make check before each commit." in then and "Before" not in then
    assert "The office is in Kiel" in seen.texts(".belief-sides section")[3]
    assert set(seen.texts("[aria-label=Kinds] a")) == {"All 2", "Duplicate 1", "Two in one 1"}
    assert len(visitor.get("/proposals/found?kind=split").tree.css("input[name=pick]")) == 1
    assert visitor.get("/proposals/found?kind=nonsense").status == 400


def test_ticked_proposals_are_applied_and_undone(visitor):
    before = believed(visitor)
    (pick, *_) = [node.attributes["value"] for node in visitor.get("/proposals/found").tree.css("input[name=pick]")]
    told = visitor.post("/proposals/apply", pick=pick)
    assert "Applied 1 proposal" in told.text("[role=status]")
    assert before - believed(visitor) == {"Before each commit run make check."}
    seen = visitor.get("/proposals/found")
    assert "1 × duplicate" in seen.text(".belief-undo")
    event = seen.fields(".belief-undo")["event"]
    assert "Undone" in visitor.post("/proposals/undo", event=event).text("[role=status]")
    assert believed(visitor) == before
    assert "Nothing was changed" in visitor.post("/proposals/undo", event=event).text("[role=status]")
    assert believed(visitor) == before


def test_applying_all_shown_proposals_leaves_none(visitor):
    shown = [node.attributes["value"] for node in visitor.get("/proposals/found").tree.css("input[name=shown]")]
    told = visitor.post("/proposals/apply", [*(("shown", one) for one in shown), ("all", "1")])
    assert "Applied 2 proposals" in told.text("[role=status]")
    assert "No proposals." in visitor.get("/proposals/found").text()


def test_missing_proposals_change_nothing(visitor):
    before = believed(visitor)
    assert "tick the proposals to apply" in visitor.post("/proposals/apply").text("[role=status]")
    assert "changed since" in visitor.post("/proposals/apply", pick="merge-00000000").text("[role=status]")
    assert believed(visitor) == before


def test_drafts_wait_on_the_page_until_they_are_reviewed(visitor):
    settings = visitor.home / "config.toml"
    settings.write_text(settings.read_text() + "\n[memories]\nreview = true\n")
    with perdure.open(visitor.home, user="ada") as home:
        good = home.remember("The crane lifts 12 tonnes", path="crane", trust="agent").memory_id
        home.remember("The crane is made of cheese", path="cheese", trust="agent")
    seen = visitor.get("/proposals")
    assert "2 waiting for your review" in seen.text("#waiting") and "cheese" in seen.text("#waiting")
    assert "waits for your review" in visitor.get(f"/memories/{good}").text(".alert")
    assert "tick the memories" in visitor.post("/proposals/review", decide="accept").text("[role=status]")
    told = visitor.post("/proposals/review", decide="accept", pick=good)
    assert "1 memory is recalled from now on" in told.text("[role=status]")
    assert "Nothing was changed" in visitor.post("/proposals/review", decide="accept", pick=good).text("[role=status]")
    (shown,) = [node.attributes["value"] for node in visitor.get("/proposals").tree.css("#waiting input[name=shown]")]
    visitor.post("/proposals/review", decide="refuse-all", shown=shown)
    assert not visitor.get("/proposals").tree.css("#waiting")
    assert "The crane lifts 12 tonnes" in believed(visitor) and "The crane is made of cheese" not in believed(visitor)
