"""Recall through the home: what it says, where it looks, what it leaves out, and that it only reads."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from perdure.errors import ModelUnreachable
from perdure.recall.judge import THRESHOLDS
from perdure.recall.pack import explain_absence, render_cue
from perdure.testing import FakeEmbedder
from perdure.types import Live

TALK = (
    ("user", "We keep the tide heights in SQLite, not in Postgres: nobody there looks after a server."),
    ("assistant", "Understood. SQLite in WAL mode it is."),
    ("user", "The server listens on port 8417."),
    ("assistant", "I noted the port in the README."),
    ("user", "Ismet wants everything live before the spring tide."),
    ("assistant", "Then we have four weeks."),
)
BAKERY = (
    ("user", "The sourdough starter is fed every morning with rye flour."),
    ("assistant", "Rye keeps it active; I put it on the list."),
)
START = datetime(2026, 3, 2, 9, tzinfo=UTC)
NOW = datetime(2026, 3, 20, 9, tzinfo=UTC)


def lines(talk, start=START):
    days = ((start + timedelta(days=n)).isoformat() for n in range(len(talk)))
    rows = ({"role": role, "content": words, "timestamp": at} for (role, words), at in zip(talk, days, strict=True))
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


@pytest.fixture
def opened(opened_quiet):
    """Turns alone; test_memories.py has memories beside them."""
    return opened_quiet


@pytest.fixture
def home(opened):
    made = opened(embedder=FakeEmbedder())
    made.capture(lines(TALK), runtime="messages", session="tides", cwd="/work/tidepool")
    made.capture(lines(BAKERY), runtime="messages", session="bread", cwd="/work/bakery")
    return made


def said(found):
    return [cue.text for cue in found.cues]


def test_cue_names_its_source_time_and_reason(home):
    cue = home.recall("Which port does the server listen on?", now=NOW).cues[0]
    assert cue.text == TALK[2][1]
    assert (cue.role, cue.runtime, cue.conversation) == ("user", "messages", "tides")
    assert cue.stated_at == START + timedelta(days=2)
    assert (cue.project, cue.age) == ("/work/tidepool", "16 days ago")  # from 4 to 20 March
    assert cue.run_id and cue.machine and any("words" in reason for reason in cue.why)
    assert home.resolve(cue.turn_id) == ("turn", cue.turn_id)


def test_recall_is_silent_about_unknown_things(home):
    found = home.recall("Which violin did Paganini play in Genoa?", now=NOW)
    assert found.cues == () and found.silent and found.degraded == ()
    assert home.recall("ok, go on", now=NOW).silent == "the message asks for nothing"


def test_rare_name_is_found_in_any_wording(home):
    found = home.recall("When has it all to be finished for Ismet?", now=NOW)
    assert any("Ismet" in reason for cue in found.cues for reason in cue.why if cue.text == TALK[4][1])


def test_other_projects_are_searched_only_if_named_or_requested(home):
    message = "What is the sourdough starter fed with?"
    assert not home.recall(message, now=NOW, cwd="/work/tidepool").cues
    assert BAKERY[0][1] in said(home.recall(message, now=NOW, cwd="/work/bakery"))
    assert BAKERY[0][1] in said(home.recall(message, now=NOW, cwd="/work/tidepool", all_projects=True))
    assert BAKERY[0][1] in said(home.recall(f"In the bakery: {message}", now=NOW, cwd="/work/tidepool"))


def test_turn_without_a_project_is_recalled_in_every_project(home):
    home.capture(lines([("user", "My violin teacher is called Aurelia.")]), runtime="messages", session="me")
    assert said(home.recall("Who is my violin teacher?", now=NOW, cwd="/work/tidepool")) == [
        "My violin teacher is called Aurelia."
    ]


def test_session_gets_its_own_turn_only_after_a_compaction(home):
    message = "Which port does the server listen on?"
    assert not home.recall(message, now=NOW, session=Live("tides")).cues
    compacted = Live("tides", since_at=START + timedelta(days=3))
    assert TALK[2][1] in said(home.recall(message, now=NOW, session=compacted))


def test_recalled_cue_is_not_repeated(home):
    message = "Which port does the server listen on?"
    first = home.recall(message, now=NOW)
    again = home.recall(message, now=NOW, already=[cue.turn_id for cue in first.cues])
    assert not {cue.turn_id for cue in first.cues} & {cue.turn_id for cue in again.cues}


def test_named_time_is_searched(home):
    found = home.recall("What did I say on 4 March?", now=NOW)
    assert TALK[2][1] in said(found)
    assert [window.words for window in found.plan.windows] == ["4 March"]


def test_recall_uses_vectors_and_names_their_failure(opened):
    model = FakeEmbedder(name=next(iter(THRESHOLDS)))
    home = opened(embedder=model)
    home.capture(lines(TALK), runtime="messages", session="tides")
    assert "vector" not in home.recall("Which port does the server listen on?", now=NOW).cues[0].legs
    home.upkeep.embed()
    found = home.recall("Which port does the server listen on?", now=NOW)
    assert "vector" in found.cues[0].legs and {"queued", "compute"} <= found.timings_ms.keys()
    assert found.depth == {"query": 0, "ingest": 0, "bulk": 0}
    model._answers = [ModelUnreachable("gone")]
    broken = home.recall("Which port does the server listen on?", now=NOW)
    assert broken.degraded == ("vector",) and broken.cues[0].text == TALK[2][1]


@pytest.mark.parametrize("error", [RuntimeError("boom"), MemoryError(), OSError(5, "I/O")], ids=repr)
def test_words_answer_whatever_the_model_runs_into(opened, error):
    model = FakeEmbedder()
    home = opened(embedder=model)
    home.capture(lines(TALK), runtime="messages", session="tides")
    home.upkeep.embed()
    model._answers = [error, error]
    recalled = home.recall("Which port does the server listen on?", now=NOW)
    assert recalled.degraded == ("vector",) and recalled.cues[0].text == TALK[2][1]
    result = home.search("server port")
    assert result.degraded == ("vector",) and result.hits


@pytest.mark.index_file("loses the files of vectors beside it")
def test_words_answer_where_files_of_vectors_were_lost(opened):
    home = opened(embedder=FakeEmbedder())
    home.capture(lines(TALK), runtime="messages", session="tides")
    home.upkeep.embed()
    home.close()
    for path in (home.path / "vectors").rglob("*.segment"):
        path.unlink()
    again = opened(embedder=FakeEmbedder())
    recalled = again.recall("Which port does the server listen on?", now=NOW)
    assert recalled.degraded == ("vector",) and recalled.cues[0].text == TALK[2][1]


def test_a_task_is_told_how_the_talk_about_it_ended(opened):
    """The talk opens with the symptom; the decision that closes it shares no word with the task."""
    home = opened()
    talk = [
        ("user", "The export of the tide table drops the last row of each month."),
        ("assistant", "Is it the loop or the query that drops it?"),
        *[(role, f"Point {n} of the review is settled.") for n in range(4) for role in ("user", "assistant")],
        ("user", "Half-open intervals, then?"),
        ("assistant", "Agreed: half-open everywhere, and callers say so by name."),
    ]
    home.capture(lines(talk), runtime="messages", session="x")
    task = "Please fix the export of the tide table. It drops the last row of each month."
    assert said(home.recall(task, now=NOW))[-1] == talk[-1][1]
    assert talk[-1][1] not in said(home.recall("Which row does the export of the tide table drop?", now=NOW))


@pytest.mark.parametrize("weight", [0.0, 0.7, 1.0])
def test_the_weight_of_meaning_is_a_setting_of_search_and_recall(opened, tmp_path, weight):
    """Row X11: with 0.7, 0.7 x vector + 0.3 x BM25, each leg in [0, 1] over the candidates, to 1e-9."""
    home = opened(embedder=FakeEmbedder(name=next(iter(THRESHOLDS))))
    with (home.path / "config.toml").open("a") as settings:
        settings.write(f"[search]\nvector_weight = {weight}\n")
    home = opened(embedder=FakeEmbedder(name=next(iter(THRESHOLDS))))
    home.capture(lines(TALK), runtime="messages", session="tides")
    home.upkeep.embed()
    hits = home.search("Which port does the server listen on?", limit=50).hits
    bm25 = [hit.keyword_score for hit in hits if hit.keyword_score is not None]
    for hit in hits:
        by_words = 0.0 if hit.keyword_score is None else (hit.keyword_score - min(bm25)) / (max(bm25) - min(bm25))
        by_meaning = min(1.0, max(0.0, hit.vector_score))
        assert hit.legs_score == pytest.approx(weight * by_meaning + (1 - weight) * by_words, abs=1e-9)
    assert home.recall("Which port does the server listen on?", now=NOW).cues


@pytest.mark.index_file("it deletes the file")
def test_recall_without_an_index_is_empty(home):
    for path in [home.path / "index.db", *home.path.glob("index-*.db*")]:
        path.unlink()
    home.connections._index = None
    found = home.recall("Which port?", now=NOW)
    assert found.cues == () and found.degraded == ("index",) and "failed" in found.silent


@pytest.mark.index_file("it reads counters of SQLite")
def test_recall_writes_nothing(home):
    home.recall("Which port?", now=NOW)
    before = {p: p.stat().st_mtime_ns for p in (home.path / "archive").rglob("*")}
    changes = home.index().db.total_changes()
    home.recall("Which port does the server listen on?", now=NOW)
    assert home.index().db.total_changes() == changes
    assert {p: p.stat().st_mtime_ns for p in (home.path / "archive").rglob("*")} == before


def test_the_same_answer_every_time_and_after_a_rebuild(home):
    home.upkeep.embed()
    message = "Why SQLite, and which port does the server listen on?"
    first = home.recall(message, now=NOW, explain=True)
    assert home.recall(message, now=NOW, explain=True).cues == first.cues
    home.upkeep.rebuild()
    assert home.recall(message, now=NOW, explain=True).cues == first.cues


def test_why_not_has_an_answer_for_every_turn(home):
    found = home.recall("Which port does the server listen on?", now=NOW, explain=True)
    every = [hit.turn_id for hit in home.search("", limit=100).hits]
    assert len(every) == len(TALK) + len(BAKERY)
    assert all(explain_absence(found, turn) for turn in every)
    bread = next(hit.turn_id for hit in home.search("sourdough").hits)
    assert "It does not match" in explain_absence(found, bread)


def test_newest_of_contradicting_turns_is_recalled(home):
    """Row R22 for turns: both are recalled, and the later can be told by its date."""
    home.capture(lines([("user", "Change the port of the server to 8642.")], NOW), runtime="messages", session="later")
    cues = home.recall("Which port does the server use?", now=NOW).cues
    assert {START + timedelta(days=2), NOW} <= {cue.stated_at for cue in cues}


def test_task_is_told_the_later_rule_first(home):
    """The earlier rule holds more words of the task; the agent stated the later one, in another session."""
    old = "The server retries the webhook five times at night, thirty seconds apart."
    new = "The server retries the webhook all night, with a growing pause."
    home.capture(lines([("user", old)], START), runtime="messages", session="first")
    home.capture(lines([("assistant", new)], NOW - timedelta(days=1)), runtime="messages", session="second")
    home.upkeep.embed()
    task = "The webhook fails five times at night. Let the server retry the webhook thirty seconds later."
    assert said(home.recall(task, now=NOW))[:2] == [new, old]
    question = "Does the webhook fail five times at night, and shall the server retry the webhook thirty seconds later?"
    assert said(home.recall(question, now=NOW))[0] == old


@pytest.mark.parametrize(
    ("later", "is_first"),
    [
        ("The pottery class moved to Friday evening. Mara sold a bowl of hers at the fair.", True),
        ("I sold a bowl of my pottery class at the fair. Mara moved to Orbis on Friday evening.", False),
    ],
)
def test_sentence_that_states_a_change_must_be_about_the_question(home, later, is_first):
    """Both later messages hold the words of the question, and say somewhere that something is otherwise now."""
    earlier = "The pottery class meets on Thursday in the harbour hall."
    for n, words in enumerate((earlier, later)):
        home.capture(lines([("user", words)], START + timedelta(days=n)), runtime="messages", session=f"class {n}")
    home.upkeep.embed()
    told = said(home.recall("On which day does the pottery class meet in the hall?", now=NOW))
    assert told[:2] == ([later, earlier] if is_first else [earlier, later])


def test_old_turn_is_found_when_it_is_the_only_one(home):
    """Row D03: age hides nothing."""
    old = datetime(2009, 5, 1, tzinfo=UTC)
    home.capture(lines([("user", "The bicycle lock opens with 3-1-4.")], old), runtime="messages", session="old")
    assert said(home.recall("What opens the bicycle lock?", now=NOW))[0].startswith("The bicycle lock")


def test_calls_between_an_answer_and_its_question_are_skipped(opened):
    home = opened()
    talk = [
        {"role": "user", "content": "Which tide gauge shall we trust?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c", "function": {"name": "l", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "gauges.csv"},
        {"role": "assistant", "content": "The northern one."},
    ]
    home.capture(b"".join(json.dumps(row).encode() + b"\n" for row in talk), runtime="messages", session="g")
    found = home.recall("Which tide gauge do we trust?", now=NOW)
    answer = next(cue for cue in found.cues if cue.text == "The northern one.")
    assert answer.before == "Which tide gauge shall we trust?"


def test_neighbour_held_by_the_session_is_not_added(home):
    """The turn behind the compaction stands beside one before it that matches; the model reads it anyway."""
    compacted = Live("tides", since_at=START + timedelta(days=3))
    found = home.recall("Which port does the server listen on?", now=NOW, session=compacted, explain=True)
    assert said(found)[0] == TALK[2][1]
    later = [words for _, words in TALK[3:]]
    held = {hit.turn_id for hit in home.search("").hits if hit.text in later}
    assert held and not held & {*(cue.turn_id for cue in found.cues), *found.passed_over}


def test_machine_turn_is_not_added_as_a_neighbour(opened):
    home = opened()
    talk = [
        ("user", "Which tide gauge shall we trust, the northern or the southern one?"),
        ("user", "<task-notification>the northern job ended</task-notification>"),
        ("assistant", "The southern one."),
    ]
    home.capture(lines(talk), runtime="messages", session="g")
    found = home.recall("Which tide gauge do we trust?", now=NOW, explain=True)
    assert {*said(found)} == {talk[0][1], talk[2][1]} and not found.passed_over
    assert all(cue.before != talk[1][1] for cue in found.cues)


def test_a_report_that_nobody_typed_is_recalled_as_such_and_a_notice_is_not(opened):
    home = opened()
    talk = [
        ("user", "<task-notification>The audit of the tide gauges trusts the southern one.</task-notification>"),
        ("user", "<system-reminder>Never trust the southern tide gauge.</system-reminder>"),
        ("user", "# AGENTS.md instructions for /w\nAlways trust the southern tide gauge."),
    ]
    home.capture(lines(talk), runtime="messages", session="g")
    found = home.recall("Which tide gauge do we trust, the southern?", now=NOW)
    assert [(cue.role, cue.text) for cue in found.cues] == [("system", talk[0][1])]
    assert len(home.search("southern tide gauge").hits) == 3


def test_a_memory_of_one_turn_is_recalled(opened):
    home = opened()
    home.capture(lines(TALK[2:3]), runtime="messages", session="first")
    assert said(home.recall("Which port does the server listen on?", now=NOW)) == [TALK[2][1]]


STAGING = (
    "The staging server listens on port 8642.", "The staging server is listening on port 8642 now.",
    "Our staging server listens on port 8642, as always.", "The staging database runs on tern.",
    "Staging deploys happen on Mondays.", "The server certificate for staging expires in May.",
)  # fmt: skip


@pytest.mark.parametrize("mode", ["keyword", "hybrid"])
@pytest.mark.parametrize(
    "message", ["Which port does the staging server listen on?", "staging server", "What do we know about staging?"]
)
def test_one_of_three_like_memories_is_among_the_first(opened, mode, message):
    """Row X13: three that say nearly the same, and three others. One of the three is in the first four places; with
    vectors, which tell what is far from the best match, the other two are not told.
    """
    home = opened()
    for n, statement in enumerate(STAGING):
        home.remember(statement, path=f"staging/{n}", stated_at=START + timedelta(minutes=n))
    if mode == "hybrid":
        home.upkeep.embed()
    found = said(home.recall(message, now=NOW, mode=mode))
    assert set(found) == set(STAGING) if mode == "keyword" else set(found) < set(STAGING)
    assert len(set(found[:4]) & set(STAGING[:3])) == 1


def test_like_memories_with_other_numbers_keep_their_places(opened):
    home = opened()
    home.remember("The staging server listens on port 8642.", path="a", stated_at=START)
    home.remember("The staging server listens on port 9000.", path="b", stated_at=START + timedelta(days=1))
    home.remember("The staging server is rebooted in May.", path="c", stated_at=START)
    found = said(home.recall("Which port does the staging server listen on?", now=NOW, mode="keyword"))
    assert [words[-5:-1] for words in found[:2]] == ["9000", "8642"]


def test_two_principals_share_nothing(opened):
    ada, bob = opened(user="ada"), opened(user="bob")
    ada.capture(lines(TALK), runtime="messages", session="tides")
    assert ada.recall("Which port does the server listen on?", now=NOW).cues
    assert not bob.recall("Which port does the server listen on?", now=NOW).cues


def web_talk(claude, tool, arguments):
    return b"".join([
        claude("user", "What is the berth fee of the northern quay?", "1", 0),
        claude("assistant", [{"type": "tool_use", "id": "t1", "name": tool, "input": arguments}], "2", 1),
        claude("user", [{"type": "tool_result", "tool_use_id": "t1", "content": "berth fee: 40 crowns"}], "3", 2),
        claude("assistant", [{"type": "text", "text": "The berth fee of the northern quay: 40 crowns a day."}], "4", 3),
        claude("user", "Thanks. Which colour has the northern quay's crane?", "5", 4),
        claude("assistant", [{"type": "text", "text": "The crane of the northern quay is green."}], "6", 5),
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("tool", "arguments", "is_web"),
    [
        ("WebFetch", {"url": "https://quay.example"}, True),
        ("Bash", {"command": "curl -s https://quay.example/fees"}, True),
        ("Read", {"file_path": "/w/fees.md"}, False),
        ("Edit", {"file_path": "/w/a.md", "old_string": "a", "new_string": "see https://quay.example"}, False),
    ],
)
def test_what_an_agent_says_about_a_page_keeps_the_label_of_the_web(opened, claude, tool, arguments, is_web):
    """Until the next message of a person: what the agent says then has nothing to do with the page."""
    home = opened()
    home.capture(web_talk(claude, tool, arguments), runtime="claude-code", session="s")
    found = home.recall("What did we learn about the northern quay: berth fee, crane colour?", now=NOW)
    by_text = {cue.text: cue for cue in found.cues}
    fee, crane = (next(cue for words, cue in by_text.items() if part in words) for part in ("40 crowns a", "green"))
    assert fee.is_from_web is is_web and not crane.is_from_web
    assert ("assistant · from the web, unverified · " in render_cue(fee)) is is_web
    assert "from the web" not in render_cue(crane)


@pytest.mark.parametrize("mode", ["keyword", None])
def test_old_exact_answer_stands_before_newer_ones_about_other_things(opened, mode):
    """Row D07: twelve statements of one form, each asked for by name; the oldest is as good as the newest."""
    home = opened()
    names = [
        "mail",
        "print",
        "auth",
        "cache",
        "search",
        "build",
        "chat",
        "video",
        "backup",
        "proxy",
        "queue",
        "billing",
    ]
    talk = [("user", f"The {name} server listens on port {8000 + 11 * n}.") for n, name in enumerate(names)]
    home.capture(lines(talk), runtime="messages", session="ports")
    home.upkeep.embed()
    for name, (_, statement) in zip(names, talk, strict=True):
        question = f"Which port does the {name} server listen on?"
        assert home.recall(question, now=NOW, mode=mode).cues[0].text == statement
        assert home.search(question, mode=mode).hits[0].text == statement
