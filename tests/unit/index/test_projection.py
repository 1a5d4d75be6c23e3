"""Rows made of runs: chunks, facets and sidechains."""

from datetime import UTC, datetime

from perdure.index.projection import CHUNK_CHARS, project_run
from perdure.types import ParsedLines, Part, Run, Source, Turn

AT = datetime(2026, 1, 15, 9, tzinfo=UTC)
KEY = "AKIA" + "J7Q2W9E4R6T8Y1U3"


def run_of(*turns, title=""):
    source = Source("ada", "messages", "s")
    run = Run("0" * 26, source, "m", "default", None, "s", 0, 9999, "0" * 64, AT, AT, AT)
    return project_run(run, ParsedLines(tuple(turns), title=title))


def turn(*parts, at=0, role="user", author="person", **more):
    return Turn(role, author, ((at, at + 100),), parts, AT, **more)


def test_neighbours_of_one_kind_share_a_chunk_and_results_do_not():
    parts = (Part("text", "a"), Part("pasted", "b"), Part("call", "{}", "ls"), Part("result", "x"), Part("result", "y"))
    (row,) = run_of(turn(*parts))
    assert [(c.n, c.kind, c.text) for c in row.turns[0].chunks] == [
        (0, "text", "a\n\nb"), (1, "call", "ls {}"), (2, "result", "x"), (3, "result", "y"),
    ]  # fmt: skip


def test_every_character_of_a_long_turn_is_in_a_chunk():
    words = " ".join(f"word{n}" for n in range(5000))
    (row,) = run_of(turn(Part("text", words)))
    chunks = row.turns[0].chunks
    assert max(len(c.text) for c in chunks) <= CHUNK_CHARS
    assert {word for c in chunks for word in c.text.split()} >= set(words.split())
    assert len({c.tie for c in chunks}) == len(chunks)


def test_secret_across_two_chunks_is_masked_before_the_cut():
    words = "x " * (CHUNK_CHARS // 2 - 6) + KEY + " y" * CHUNK_CHARS
    (row,) = run_of(turn(Part("text", words)), title=f"about {KEY}")
    whole = "".join(c.text for c in row.turns[0].chunks)
    assert KEY[:8] not in whole and "[secret:aws-key-id]" in whole
    assert KEY not in row.intent and KEY not in row.title


def test_facets_of_a_turn_are_noted_once():
    parts = (Part("text", "Ada Lovelace met Ada Lovelace"), Part("call", "{}", "Edit"), Part("call", "{}", "Edit"))
    (row,) = run_of(turn(*parts, files=("/a.py", "/a.py"), skills=("deploy",)))
    assert row.turns[0].facets == (("file", "/a.py"), ("skill", "deploy"), ("tool", "Edit"), ("entity", "Ada Lovelace"))
    assert row.n_calls == 2


def test_summaries_and_results_give_no_names():
    (row,) = run_of(turn(Part("text", "Ada Lovelace"), is_summary=True), turn(Part("result", "Ada Lovelace"), at=100))
    assert all(kind != "entity" for t in row.turns for kind, _ in t.facets)
    assert row.intent == "Ada Lovelace"[:0]  # neither is asked: a summary, and a turn of results alone


def test_sidechains_are_rows_of_their_own():
    rows = run_of(turn(Part("text", "main")), turn(Part("text", "side"), at=100, thread="agent-1"), title="T")
    assert [(r.thread, r.title, len(r.turns)) for r in rows] == [("", "T", 1), ("agent-1", "", 1)]
    assert rows[0].run_id == "0" * 26 != rows[1].run_id and rows[1].run_id[:10] == "0" * 10


def test_intent_is_the_first_text_of_a_person():
    rows = run_of(turn(Part("text", "setup"), author="machine"), turn(Part("text", "p" * 600), at=100))
    assert rows[0].intent.startswith("ppp") and len(rows[0].intent) == 500
    assert rows[0].count_role("user") == 2


WRAPPER = "<environment_context>\n<cwd>/w</cwd>\n</environment_context>"


def test_intent_is_the_first_request_not_a_wrapper():
    turns = [turn(Part("text", text), at=100 * n) for n, text in enumerate([WRAPPER, "ok", "/clear", "fix the quay"])]
    assert run_of(*turns)[0].intent == "fix the quay"
    assert run_of(*turns[:3])[0].intent == "ok"  # nothing better was typed
    assert run_of(turns[0])[0].intent == ""


def test_intent_without_a_person_is_the_task():
    notice, task = Part("text", "<task-notification>done</task-notification>"), Part("text", "Review the last commit")
    (row,) = run_of(turn(notice, author="machine"), turn(task, author="machine", at=100))
    assert row.intent == "Review the last commit"


def test_a_wrapper_is_no_title():
    assert run_of(turn(Part("text", "hi there all")), title=WRAPPER)[0].title == ""
    assert run_of(turn(Part("text", "hi there all")), title="Moorings")[0].title == "Moorings"


def test_empty_parts_make_no_chunk():
    (row,) = run_of(turn(Part("text", "  \n"), Part("image", "")))
    assert row.turns[0].chunks == ()
