"""Lines of notes.md: which are one, which takes whose place, and what a pass of the rules may do to a page."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.floor import notes
from perdure.types import Memory

T0 = datetime(2026, 1, 15, 9, tzinfo=UTC)
PHRASES = (
    "We use Postgres for the queue", "The staging port is 8443", "The staging port is 9000", "I prefer tabs",
    "Every commit must be signed", "Every commit must be signed off", "Deploys go out on Fridays", "I like tea",
    "Deploys go out on Tuesdays", "API responses should always use {code, data, message} format", "- a bullet",
)  # fmt: skip


def memory(text, n=0, *, retired=False, project=None, kind="preference"):
    return Memory(
        f"mem-20260115-0900{n:02d}-abcdef", text, kind, f"stated/{kind}/x{n}", "default", project,
        T0 + timedelta(minutes=n), T0, "owner", "stated", retired=retired, order=f"{n:04d}|w|1|0",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("new", "old"),
    [
        ("The project uses SQLite in WAL mode.", "Project uses SQLite WAL mode"),
        ("the  Project uses sqlite in WAL mode", "The project uses SQLite in WAL mode"),
        ("API responses should use {code, data}", "API responses should always use {code, data} format"),
        ("Prefer functional style, avoid classes", "User prefers functional style and avoids classes"),
        ("Run the tests before you push", "Always run the tests before you push"),
        ("tabs", "Tabs"),
        ("On Fridays never push to main", "Never push to main on Fridays"),
        ("Before pushing, run the tests", "Run the tests before pushing"),
        ("Deploy from the release branch", "Always deploy from the release branch"),
        ("Backups should run daily", "The backups run daily."),
        ("Backups run daily", "Backups run daily and are encrypted"),
        ("Run tests before pushing", "Run tests and linters before pushing"),
        ("Sign release tags before committing", "Sign the release tags before commits"),
        ("Signed commits are required here", "Commits signed: required here"),
        ("User prefers functional style and avoids classes", "Prefer functional style, avoid classes"),
        ("Restart the worker after deploying", "Restart the workers after deploys"),
    ],
)  # fmt: skip
def test_equal_notes_are_recognised(new, old):
    assert notes.is_same_note(new, old)


@pytest.mark.parametrize(
    ("new", "old"),
    [
        ("The staging port is 9000", "The staging port is 8443"),
        ("Use tabs in Go", "Use tabs in Python"),
        ("Deploys go out on Tuesdays after the smoke tests", "Deploys go out on Fridays after the smoke tests"),
        ("Never use tabs for indentation", "Use tabs for indentation"),
        ("Use tabs for indentation", "Never use tabs for indentation"),
        ("We use Redis for the cache", "We use Postgres for the queue"),
        ("Deploys go out on Fridays and Mondays", "Deploys go out on Fridays"),
        ("tabs", "spaces"),
        ("Ask Christine about the budget", "Ask Christopher about the budget"),
        ("Project uses Postgraphile for storage", "Project uses Postgres for storage"),
        ("Run tests and linters before pushing", "Run tests before pushing"),
        ("Deploy only from the release branch after review", "Deploy from the release branch"),
        ("Deploy from the release branch", "Deploy only from the release branch"),
        ("The API client uses retries with exponential backoff", "The API client uses retries"),
        ("Use the internal API for search", "Use the interactive API for search"),
        ("Deploy to the production database", "Deploy to the product database"),
        ("Enable telemetry in tests", "Disable telemetry in tests"),
        ("Always deploy manually", "Deploy manually only on request"),
        ("Backups run daily and are encrypted", "Backups run daily"),
        ("Stop using tabs for indentation", "Using tabs for indentation"),
        ("Using tabs for indentation", "Stop using tabs for indentation"),
        ("We no longer use Redis for the cache", "We use Redis for the cache"),
        ("Rebuild the frontend and restart nginx", "Rebuild the frontend"),
        ("Marianne owns the billing service", "Marian owns the billing service"),
        ("Alexandra is allergic to peanuts", "Alexander is allergic to peanuts"),
        ("Never push to main without review", "Never push to main"),
        ("Never push to main", "Never push to main without review"),
        ("Use pnpm, not npm", "Use npm, not pnpm"),
        ("Migrate from Postgres to MySQL", "Migrate from MySQL to Postgres"),
    ],
)
def test_different_notes_are_kept_apart(new, old):
    assert not notes.is_same_note(new, old)


def test_jaccard_by_hand():
    """{deploy, go, out, via, script} and {deploy, go, out, through, make}: 3 of 7 words, 0.43, are shared."""
    assert not notes.is_same_note("Deploys go out via script", "Deploys go out through make")


def test_line_reads_back_as_written():
    line = notes.make_line("tabs  everywhere <!-- x -->", memory="mem-1", project="/a b/100%>c")
    assert line.words == "tabs everywhere < !-- x -->"
    assert notes.parse_line(line.raw) == line
    assert notes.parse_line("1) one").words == "one" and not notes.parse_line("# Heading").is_note


def test_of_another_project_is_another_note():
    text = notes.add_line("", notes.make_line("I prefer tabs", project="/a")).text
    both = notes.add_line(text, notes.make_line("I prefer tabs", project="/b"))
    assert both.same_line is None
    everywhere = notes.add_line("", notes.make_line("I prefer tabs")).text
    assert notes.add_line(everywhere, notes.make_line("I prefer tabs", project="/b")).same_line is not None
    assert notes.select_for_project(both.text, "/a").splitlines() == ["- I prefer tabs <!-- project: /a -->"]
    assert notes.select_for_project(both.text, None) == ""


def test_correction_is_appended_at_the_end():
    text = "# Notes\n- The staging port is 8443\n- tea\n"
    found = notes.add_line(text, notes.make_line("The staging port is 9000"))
    assert found.text == "# Notes\n- tea\n- The staging port is 9000\n"
    assert [line.words for line in found.replaced_lines] == ["The staging port is 8443"]


def test_extended_note_replaces_its_line_and_news_is_added():
    found = notes.add_line("- Backups run daily\n", notes.make_line("Backups run daily and are encrypted"))
    assert found.text == "- Backups run daily and are encrypted\n" and found.replaced_lines
    found = notes.add_line("- Use tabs\n", notes.make_line("Use tabs in Go"))
    assert found.text == "- Use tabs\n- Use tabs in Go\n" and not found.same_line


def test_rules_keep_lines_of_a_person():
    text = "- The staging port is 8443\n"
    found = notes.update_page(text, [memory("The staging port is 9000")], {}, {})
    assert found.text.splitlines()[0] == "- The staging port is 8443" and len(found.added_lines) == 1


def test_retired_line_is_replaced_by_its_successor():
    old, heir = memory("The port is 80", retired=True), memory("The port is 81", 1)
    text = f"- mine\n{notes.line_from_memory(old).raw}\n- also mine\n"
    found = notes.update_page(text, [], {old.memory_id: old}, {old.memory_id: heir})
    assert found.text == f"- mine\n- also mine\n{notes.line_from_memory(heir).raw}\n"
    edited = text.replace("port is 80", "port was 80")
    assert notes.update_page(edited, [], {old.memory_id: old}, {old.memory_id: heir}).text == edited


def test_only_lasting_memories_are_worth_a_note():
    assert notes.is_worth_noting(memory("x"))
    assert not notes.is_worth_noting(memory("x", retired=True))
    assert not notes.is_worth_noting(memory("x", kind="fact"))


lines = st.lists(st.sampled_from(PHRASES), max_size=6)


@settings(max_examples=150, deadline=None)
@given(lines, st.lists(st.tuples(st.sampled_from(PHRASES), st.booleans()), max_size=8))
def test_a_pass_appends_keeps_the_order_and_never_empties(by_hand, said):
    """What stood there and still stands is in its old order before what is new; a second pass changes nothing."""
    page = "".join(f"- {one}\n" for one in by_hand)
    known = {}
    for n, (words, goes) in enumerate(said):
        made = memory(words, n)
        before = page.splitlines()
        page = notes.update_page(page, [made], known, {}).text
        known[made.memory_id] = made
        after = page.splitlines()
        stayed = [line for line in before if line in after]
        assert after[: len(stayed)] == stayed and len(after) - len(stayed) <= 1
        assert {f"- {one}" for one in by_hand} <= set(after)
        assert page.strip() or not before
        assert notes.update_page(page, [made], known, {}).text == page
        if goes:
            known[made.memory_id] = memory(words, n, retired=True)
            page = notes.update_page(page, [], known, {}).text
            assert made.memory_id not in page and page.strip()


@settings(max_examples=60, deadline=None)
@given(st.permutations(PHRASES))
def test_the_order_in_which_memories_are_read_does_not_matter(order):
    made = {words: memory(words, n) for n, words in enumerate(PHRASES)}
    expected = notes.update_page("", made.values(), {}, {})
    assert notes.update_page("", [made[words] for words in order], {}, {}) == expected
