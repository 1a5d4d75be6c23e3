"""Search through the whole path: captured bytes to hits, with filters, for one principal, and nothing but reading."""

import json
import random
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.errors import IndexMissing, UsageError
from perdure.index import keyword
from perdure.types import Filters

KEY = "sk-ant-" + "api03-Zx8Qw3Er5Ty7Ui9Op1As2Df4Gh6Jk"


def capture(home, session, *lines, runtime="messages", **how):
    answer = home.capture(b"".join(lines), runtime=runtime, session=session, **how)
    assert answer.outcome == "stored", answer
    return answer


def texts(found):
    return [hit.text for hit in found.hits]


def ids(found):
    return [hit.turn_id for hit in found.hits]


def words_tables(index):
    return [f"words_{number}" for number in index.list_names("user")]


def check_integrity(index):
    for table in words_tables(index):
        index.db.execute(f'INSERT INTO "{table}"("{table}") VALUES (\'integrity-check\')')


# what is found ------------------------------------------------------------------------------------------------


@pytest.fixture
def two_sessions(home, message):
    """The seed's example (X21): the words stand apart in both."""
    capture(home, "s1", message("user", "Should SQLite run in WAL mode here?"), message("assistant", "Yes."))
    capture(home, "s2", message("user", "We moved SQLite; for the readers, WAL is the better mode.", 5))
    capture(home, "s3", message("user", "Bake the bread at 220 degrees.", 9))
    return home


def test_words_may_be_apart(two_sessions):
    found = two_sessions.search("sqlite WAL mode")
    assert {hit.conversation for hit in found.hits} == {"s1", "s2"}
    assert found.terms == ("sqlite", "wal", "mode")
    assert two_sessions.search('"SQLite run in WAL"').hits[0].conversation == "s1"
    assert len(two_sessions.search('"WAL mode"').hits) == 1


def test_words_are_stemmed_and_folded(home, message):
    capture(home, "s", message("user", "The réunions were RUNNING late"))
    assert home.search("reunion").hits and home.search("runs").hits


def test_exact_identifier_beats_a_thousand_similar_ones(home, message):
    """X16."""
    lines = [message("assistant", f"error code E{n} in the payment queue, retry {n}", n) for n in range(1000)]
    capture(home, "s", *lines)
    found = home.search("payment queue error E613")
    assert "E613" in found.hits[0].text and "E613" not in found.hits[1].text
    assert found.hits[0].score > found.hits[1].score


def test_the_last_sentence_of_a_very_long_turn_is_found(home, message):
    """X29: 100,000 characters are at least 50 chunks of 2,000; every chunk is there once."""
    filler = " ".join(f"filler{n % 700}" for n in range(11_000))[:100_000]
    capture(home, "s", message("user", filler + " The zeppelin landed in Friedrichshafen."))
    (hit,) = home.search("zeppelin Friedrichshafen").hits
    assert hit.text.endswith("landed in Friedrichshafen.")
    rows = home.index().select("SELECT turn, n FROM chunk")
    assert len(rows) >= 50 and len(set(rows)) == len(rows)
    assert len(home.search("filler1 filler2").hits) == 1  # one turn, however many of its chunks match


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("我们决定把数据库迁移到新的服务器上。", "数据库"),
        ("我们决定把数据库迁移到新的服务器上。", "迁移"),
        ("明日の会議は大阪で行います。", "会議"),
        ("サーバーをアップデートしました。", "アップデート"),
        ("พรุ่งนี้เราจะย้ายฐานข้อมูลไปเซิร์ฟเวอร์ใหม่", "ฐานข้อมูล"),
        ("내일 회의에서 데이터베이스를 논의합니다.", "데이터베이스"),
        ("用SQLite的WAL模式", "sqlite wal"),
    ],
)
def test_languages_without_spaces_are_searched(home, message, said, asked):
    capture(home, "s", message("user", said), message("user", "something else 其他 その他 อื่น 기타", 1))
    (hit, *_) = home.search(asked).hits
    assert hit.text == said


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.text(max_size=80), st.text("\"*(){}^:-+NEARANDOR \0'%_\\", max_size=40)))
def test_any_text_is_a_safe_query(two_sessions, query):
    """X20."""
    found = two_sessions.search(query)
    assert len(found.hits) <= 4
    two_sessions.index()
    keyword.find_turns_with_all_words(two_sessions.index(), two_sessions.principal, query, filters=Filters())


@pytest.mark.parametrize("query", ["sqlite*", "sqlite NOT wal", "NEAR(sqlite wal)", "sqlite ^wal", "-wal"])
def test_operators_are_words(two_sessions, query):
    assert {hit.conversation for hit in two_sessions.search(query).hits} == {"s1", "s2"}


def test_a_very_long_query_is_answered(two_sessions):
    assert two_sessions.search("sqlite " + " ".join(f"w{n}" for n in range(20_000))).hits


def test_no_words_means_the_newest_first(two_sessions):
    found = two_sessions.search("", limit=2)
    assert [hit.conversation for hit in found.hits] == ["s3", "s2"]
    assert {hit.score for hit in found.hits} == {0.0}


def test_a_huge_limit_gives_everything_once(two_sessions):
    assert len(ids(two_sessions.search("", limit=1_000_000))) == 4
    assert len(ids(two_sessions.search("sqlite wal mode", limit=1_000_000))) == 2
    with pytest.raises(UsageError):
        two_sessions.search("sqlite", limit=0)


def test_empty_home_returns_no_hits(home):
    found = home.search("anything")
    assert found.hits == () and home.search("").hits == ()
    home.upkeep.catch_up()
    assert home.search("anything").degraded == () and home.search("anything").hits == ()


# frequent words -----------------------------------------------------------------------------------------------


@pytest.fixture
def small_budget(monkeypatch):
    monkeypatch.setattr(keyword, "BUDGET_MIN", 1)
    monkeypatch.setattr(keyword, "BUDGET_SHARE", 0.05)


def test_frequent_words_count_beside_a_rare_one(home, message, small_budget):
    """100 turns, budget 5. `zebra` (2) is rare, `error` (22) and `queue` (12) are common, `task` (100) says nothing."""
    lines = [message("user", f"task {n} {'error' if n % 5 == 0 else ''} {'queue' if n % 10 == 0 else ''}", n)
             for n in range(98)]  # fmt: skip
    lines += [message("user", "task zebra", 98), message("user", "task zebra error queue", 99)]
    capture(home, "s", *lines)
    found = home.search("zebra error queue task", limit=20)
    assert found.dropped == ("task",)
    assert texts(found)[:2] == ["task zebra error queue", "task zebra"]
    assert len(found.hits) == 12  # the two with `zebra`, and the ten others with both common words
    only = home.search("error queue", limit=20)
    assert len(only.hits) == 11 and all("error" in words and "queue" in words for words in texts(only))


def test_ubiquitous_word_still_gives_an_answer(home, message, small_budget):
    capture(home, "s", *(message("user", f"task {n}", n) for n in range(50)))
    assert len(home.search("task", limit=10).hits) == 10
    assert len(home.search("task nowhere", limit=10).hits) == 10
    assert len(home.search("task task2x", limit=60).hits) == 50


def search_words(home, query, limit):
    """The keyword leg alone."""
    index = home.connections.index()
    return keyword.search(index, home.principal, query, filters=Filters(), limit=limit).hits


def test_the_budget_changes_no_score(home, message, monkeypatch):
    """What is found with a budget has the score and the order that it has without one."""
    rng = random.Random(1)
    vocabulary = [f"w{n}" for n in range(30)]
    capture(home, "s", *(message("user", " ".join(rng.choices(vocabulary, k=6)), n) for n in range(300)))
    for _ in range(20):
        query = " ".join(rng.sample(vocabulary, 4))
        with monkeypatch.context() as patch:
            whole = {hit.turn_id: hit.score for hit in search_words(home, query, 300)}
            patch.setattr(keyword, "BUDGET_MIN", 1)
            patch.setattr(keyword, "BUDGET_SHARE", 0.3)
            part = search_words(home, query, 10)
        assert part and [round(h.score, 6) for h in part[:5]] == [round(whole[h.turn_id], 6) for h in part[:5]]


def test_equal_scores_come_in_a_stable_order(home, message, monkeypatch):
    """X39. More ties at the cut than are fetched beyond it go the slow way, to the same answer."""
    capture(home, "s", *(message("user", "same words", n) for n in range(200)))
    before = ids(home.search("same words", limit=10))
    assert len({hit.score for hit in search_words(home, "same words", 10)}) == 1
    monkeypatch.setattr(keyword, "_N_EXTRA", 3)
    assert ids(home.search("same words", limit=10)) == before
    assert ids(home.search("same words", limit=200))[:10] == before


# filters and principals ---------------------------------------------------------------------------------------


@pytest.fixture
def mixed(home, message, claude):
    """Four sessions about a boat, in two projects and two runtimes, ten minutes apart."""
    capture(home, "m1", message("user", "boat one"), message("assistant", "boat answer", 1), cwd="/w/harbour")
    capture(home, "m2", message("user", "boat two", 10), cwd="/w/yard", tags=["red", "slow"])
    capture(home, "m3", message("user", "boat three", 20), cwd="/w/yard", conversation="talk", tags=["red"])
    edit = {"type": "tool_use", "id": "t1", "name": "Edit", "input": {"file_path": "/w/yard/src/boat.py"}}
    line = claude("assistant", [{"type": "text", "text": "boat four"}, edit], "u1", 30, session="c4")
    capture(home, "c4", line, runtime="claude-code", cwd="/w/yard")
    return home


FILTERS = [
    ({"projects": ("/w/harbour",)}, {"boat one", "boat answer"}),
    ({"projects": ("yard",)}, {"boat two", "boat three", "boat four"}),
    ({"projects": ("ard",)}, set()),
    ({"runtimes": ("claude-code",)}, {"boat four"}),
    ({"conversations": ("talk",)}, {"boat three"}),
    ({"conversations": ("m1", "m2")}, {"boat one", "boat answer", "boat two"}),
    ({"roles": ("user",)}, {"boat one", "boat two", "boat three"}),
    ({"kinds": ("call",)}, {"call"}),
    ({"tags": ("red",)}, {"boat two", "boat three"}),
    ({"tags": ("slow",)}, {"boat two"}),
    ({"tags": ("none",)}, set()),
    ({"tags": ("red", "slow")}, {"boat two"}),
    ({"tags": ("red", "none")}, set()),
    ({"files": ("src/boat.py",)}, {"boat four"}),
    ({"files": ("oat.py",)}, set()),
    ({"tools": ("Edit",)}, {"boat four"}),
    ({"agents": ("default",)}, {"boat one", "boat answer", "boat two", "boat three", "boat four"}),
    ({"agents": ("other",)}, set()),
    (
        {"projects": ("yard",), "roles": ("user",), "tags": ("red",), "runtimes": ("messages",)},
        {"boat two", "boat three"},
    ),
    ({"projects": ("yard",), "conversations": ("m1",)}, set()),
]


@pytest.mark.parametrize(
    ("chosen", "expected"), FILTERS, ids=lambda value: "-".join(value) if isinstance(value, dict) else ""
)
@pytest.mark.parametrize("selective", [0.0, 0.1, 1.1])
@pytest.mark.parametrize("query", ["boat", ""])
def test_filters_work_alone_and_together(mixed, chosen, expected, selective, query, monkeypatch):
    """By word in MATCH, by column, and without words: always the same."""
    monkeypatch.setattr(keyword, "_SELECTIVE_SHARE", selective)
    found = mixed.search(query, filters=Filters(**chosen), limit=50)
    said = {"c4": "call" if "kinds" in chosen else "boat four"}
    assert {said.get(hit.conversation, hit.text) for hit in found.hits} == expected


def test_time_filters_include_the_first_instant_and_not_the_last(mixed, start):
    window = Filters(since_at=start + timedelta(minutes=10), until_at=start + timedelta(minutes=30))
    assert set(texts(mixed.search("boat", filters=window))) == {"boat two", "boat three"}
    assert texts(mixed.search("", filters=window)) == ["boat three", "boat two"]


@pytest.mark.parametrize("query", ["boat", ""])
def test_runs_are_filtered_by_their_ids(mixed, query):
    runs = {hit.text: hit.run_id for hit in mixed.search("boat", limit=50).hits}
    chosen = (runs["boat two"], runs["boat three"])
    for scan in (False, True):
        assert set(texts(mixed.search(query, filters=Filters(runs=chosen), scan=scan))) == {"boat two", "boat three"}
        assert not mixed.search(query, filters=Filters(runs=("no such run",)), scan=scan).hits
        both = Filters(runs=chosen, tags=("slow",))
        assert texts(mixed.search(query, filters=both, scan=scan)) == ["boat two"]


def test_facets_count_the_turns_that_match(mixed, monkeypatch):
    """Boats stand in two turns of the harbour and three of the yard; "four" in one, of another runtime."""
    found = mixed.runs.facets("boat")
    assert found.counts["project"] == {"/w/yard": 3, "/w/harbour": 2} and not found.is_partial
    assert found.counts["tag"] == {"red": 2, "slow": 1} and found.counts["agent"] == {"default": 5}
    assert mixed.runs.facets("four").counts["runtime"] == {"claude-code": 1}
    assert mixed.runs.facets("", filters=Filters(tags=("red",))).counts["runtime"] == {"messages": 2}
    assert mixed.runs.facets("boat", filters=Filters(projects=("none",))).counts["project"] == {}
    monkeypatch.setattr(keyword, "MAX_FACET_CHUNKS", 3)
    few = mixed.runs.facets("boat")
    assert few.is_partial and sum(few.counts["project"].values()) == 3


def test_forgetting_by_words_needs_all_of_them(mixed):
    found = keyword.find_turns_with_all_words(mixed.index(), mixed.principal, "boat answer", filters=Filters())
    assert len(found) == 1
    assert (
        len(
            keyword.find_turns_with_all_words(
                mixed.index(), mixed.principal, "boat", filters=Filters(projects=("yard",))
            )
        )
        == 3
    )


def test_each_principal_sees_only_their_own(opened, message):
    ada, bob = opened(user="ada"), opened(user="bob")
    capture(ada, "a", message("user", "the harbour secret of ada"))
    capture(bob, "b", message("user", "the harbour secret of bob"))
    assert texts(ada.search("harbour secret")) == ["the harbour secret of ada"]
    assert texts(bob.search("harbour secret")) == ["the harbour secret of bob"]
    assert bob.search("harbour", filters=Filters(conversations=("a",))).hits == ()
    assert texts(bob.search("")) == ["the harbour secret of bob"]
    assert texts(bob.search("harbour", scan=True)) == ["the harbour secret of bob"]
    assert opened(user="eve").search("harbour").hits == ()


def test_turns_of_others_do_not_change_a_ranking(opened, message):
    """Word counts are each owner's own: the scores of ada stay what they were."""
    ada, bob = opened(user="ada"), opened(user="bob")
    capture(ada, "a", message("user", "pear apple"), message("user", "pear", 1), message("user", "apple plum", 2))
    before = [(hit.text, hit.score) for hit in ada.search("pear apple").hits]
    capture(bob, "b", *(message("user", f"pear {n}", n) for n in range(50)))
    assert [(hit.text, hit.score) for hit in ada.search("pear apple").hits] == before


# the six columns ----------------------------------------------------------------------------------------------


def test_run_is_found_by_each_of_its_columns(home, claude):
    """A04: 3 file edits, 2 skills, 4 named entities, and what was said and done."""
    edits = [
        {"type": "tool_use", "id": f"t{n}", "name": "Edit", "input": {"file_path": f"/w/src/part{n}.py"}}
        for n in (1, 2, 3)
    ]
    skills = [
        {"type": "tool_use", "id": f"k{n}", "name": "Skill", "input": {"skill": name}}
        for n, name in enumerate(("deploy", "review"))
    ]
    asked = "Yesterday Ada Lovelace and Grace Hopper asked about ABC-42 in `src/engine.rs`."
    answer = capture(
        home, "s", claude("user", asked, "u1"),
        claude("assistant", [{"type": "text", "text": "I will edit the lighthouse."}, *edits, *skills], "u2", 1),
        runtime="claude-code",
    )  # fmt: skip
    columns = home.runs.columns(answer.run_id)
    assert columns.user_messages == (asked,)
    assert columns.agent_messages == ("I will edit the lighthouse.",)
    assert columns.files_touched == ("/w/src/part1.py", "/w/src/part2.py", "/w/src/part3.py")
    assert columns.skills == ("deploy", "review")
    assert set(columns.entities) == {"Ada Lovelace", "Grace Hopper", "ABC-42", "src/engine.rs"}
    queries = [
        ("Lovelace asked", Filters(roles=("user",))), ("lighthouse", Filters(roles=("assistant",))),
        ("part2", Filters(kinds=("call",))), ("", Filters(files=("src/part3.py",))), ("", Filters(skills=("review",))),
        ("", Filters(entities=("Grace Hopper",))), ("", Filters(entities=("abc-42",))), ("", Filters(tools=("Edit",))),
    ]  # fmt: skip
    for query, filters in queries:
        found = home.search(query, filters=filters)
        assert found.hits and {hit.run_id for hit in found.hits} == {answer.run_id}, (query, filters)


@pytest.mark.parametrize(("field", "name"), [("files", "src/buoy.py"), ("tools", "edit"), ("conversations", "s")])
def test_a_filter_may_name_thousands(home, claude, field, name):
    edit = {"type": "tool_use", "id": "t1", "name": "Edit", "input": {"file_path": "/w/src/buoy.py"}}
    answer = capture(
        home, "s", claude("user", "Edit it.", "u1"), claude("assistant", [edit], "u2"), runtime="claude-code"
    )
    names = [f"other-{n}.py" for n in range(40_000)]
    result = home.search("", filters=Filters(**{field: (*names, name)}))
    assert result.hits and {hit.run_id for hit in result.hits} == {answer.run_id}
    assert not home.search("", filters=Filters(**{field: tuple(names)})).hits


@pytest.mark.parametrize("name", ["a\0", "\ud800"])
def test_a_filter_by_a_name_that_nothing_can_have_finds_nothing(home, claude, name):
    edit = {"type": "tool_use", "id": "t1", "name": "Edit", "input": {"file_path": "/w/src/buoy.py"}}
    capture(home, "s", claude("user", "Edit it.", "u1"), claude("assistant", [edit], "u2"), runtime="claude-code")
    for field in ("projects", "conversations", "roles", "tags", "runs", "files", "tools", "entities"):
        assert not home.search("edit", filters=Filters(**{field: (name,)})).hits


# one message, once --------------------------------------------------------------------------------------------


@pytest.mark.index_file("it asks FTS5 for its own check")
def test_a_fork_that_copies_history_is_indexed_once(home, claude):
    """X41."""
    first = [
        claude("user", "the copied harbour question", "u1", 0, "s1"),
        claude("assistant", "an answer", "u2", 1, "s1"),
    ]
    capture(home, "s1", *first, runtime="claude-code")
    copies = [
        claude("user", "the copied harbour question", "u1", 0, "s2"),
        claude("assistant", "an answer", "u2", 1, "s2"),
    ]
    capture(home, "s2", *copies, claude("user", "and something new", "u3", 2, "s2"), runtime="claude-code")
    (hit,) = home.search("copied harbour").hits
    assert hit.conversation == "s1"
    assert home.index().select("SELECT count(*) FROM turn") == [(3,)]
    check_integrity(home.index())


def test_abandoned_branch_is_marked(home):
    """pi: two answers to one question; the session went on from the second."""
    at = "2026-01-02T03:04:05.678Z"

    def entry(name, parent, role, words):
        message = {"role": role, "content": [{"type": "text", "text": words}]}
        row = {"type": "message", "id": name, "parentId": parent, "timestamp": at, "message": message}
        return json.dumps(row).encode() + b"\n"

    head = json.dumps({"type": "session", "version": 3, "id": "s", "cwd": "/w", "timestamp": at}).encode() + b"\n"
    lines = [entry("aa", None, "user", "which harbour"), entry("bb", "aa", "assistant", "harbour left behind")]
    capture(home, "s", head, *lines, runtime="pi")
    assert {hit.abandoned for hit in home.search("harbour").hits} == {False}
    more = entry("cc", "aa", "assistant", "harbour kept")
    home.capture(more, runtime="pi", session="s", from_offset=len(head) + sum(map(len, lines)))
    assert {hit.text: hit.abandoned for hit in home.search("harbour").hits} == {
        "which harbour": False, "harbour left behind": True, "harbour kept": False,
    }  # fmt: skip


@pytest.mark.index_file("it asks FTS5 for its own check")
def test_changed_message_keeps_its_id_and_has_its_last_text(home, tmp_path):
    """Gemini rewrites its document; the later state of a message wins."""
    at = "2026-01-10T02:08:26.108Z"

    def write(words, more=()):
        rows = [{"id": "m1", "timestamp": at, "type": "user", "content": "the harbour plan"},
                {"id": "m2", "timestamp": at, "type": "gemini", "content": words}, *more]  # fmt: skip
        document = {"sessionId": "g", "projectHash": "h", "startTime": at, "lastUpdated": at, "messages": rows}
        path = tmp_path / "chats" / "session-g.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(document, indent=1))
        return path

    home.import_files([write("half an answ")])
    home.upkeep.catch_up()
    (before,) = home.search("answ").hits
    home.import_files([write("half an answer, and then the whole")])
    found = home.search("whole answer").hits
    assert [(hit.turn_id, hit.text) for hit in found] == [(before.turn_id, "half an answer, and then the whole")]
    assert home.search("answ").hits == () and len(home.search("").hits) == 2
    check_integrity(home.index())


# nothing but reading, and nothing left behind -----------------------------------------------------------------


@pytest.mark.index_file("it reads counters of SQLite")
def test_search_writes_nothing(two_sessions):
    """X04."""
    index = two_sessions.index()
    version, n_changes = index.db.pragma("data_version"), index.db.total_changes()
    other = index.__class__(index.path)
    seen = other.db.pragma("data_version")
    for query in ("sqlite wal", "", "nothing of that"):
        two_sessions.search(query, filters=Filters(roles=("user",)))
    two_sessions.runs.forest()
    assert (index.db.pragma("data_version"), index.db.total_changes()) == (version, n_changes)
    assert other.db.pragma("data_version") == seen
    other.close()


@pytest.mark.index_file("it asks FTS5 for its own check")
def test_forgotten_words_leave_the_vocabulary(two_sessions):
    """X19."""
    doomed = two_sessions.forgetting.plan([two_sessions.search("bread").hits[0].turn_id])
    two_sessions.forgetting.apply(doomed)
    assert two_sessions.search("bread degrees").hits == ()
    index = two_sessions.index()
    number = index.find_name("user", "ada")
    assert index.select(f"SELECT term FROM vocab_{number} WHERE term IN ('bread', 'degre', '220')") == []
    check_integrity(index)
    assert len(two_sessions.search("sqlite wal mode").hits) == 2


def test_counts_follow_the_stored_chunks(two_sessions):
    index = two_sessions.index()
    user = index.find_name("user", "ada")
    assert index.select("SELECT n_chunks FROM name WHERE id = ?", user) == [(4,)]
    two_sessions.forgetting.apply(two_sessions.forgetting.plan([two_sessions.search("sqlite run").hits[0].run_id]))
    assert two_sessions.index().select("SELECT n_chunks FROM name WHERE id = ?", user) == [(2,)]


def test_a_secret_is_never_in_the_index_nor_in_an_answer(home, message, grep):
    """P23."""
    capture(home, "s", message("user", f"my key is {KEY} for the harbour"), message("assistant", f"export K={KEY}", 1))
    found = home.search("harbour key").hits
    assert found and all(KEY not in hit.text for hit in found) and "[secret:anthropic]" in found[0].text
    assert home.search(KEY).hits == () or all(KEY not in hit.text for hit in home.search(KEY).hits)
    assert KEY not in home.runs.get(found[0].run_id).intent
    home.index().checkpoint()
    assert all("archive" in place for place in grep(home.path, KEY.encode()))
    assert all(KEY not in hit.text for hit in home.search("harbour", scan=True).hits)


# without an index, and the same in every home -----------------------------------------------------------------


def drop_index(home):
    home.connections.delete_index()
    home.close()
    assert list(home.path.glob("index*")) == []


def test_search_without_an_index_scans_the_archive_and_says_so(opened, message):
    """A27."""
    home = opened()
    capture(home, "s1", message("user", "the harbour in the fog"), message("assistant", "I see no harbour", 1))
    drop_index(home)
    again = opened(read_only=True)
    with pytest.raises(IndexMissing):
        again.index()
    found = again.search("harbour fog")
    assert found.degraded == ("index",)
    assert texts(found) == ["the harbour in the fog", "I see no harbour"]
    assert texts(again.search("harbour", filters=Filters(roles=("assistant",)))) == ["I see no harbour"]
    assert again.search("submarine").hits == ()


def spoken(message, seed):
    """Twelve sessions of ten turns over forty words, as (session, bytes)."""
    rng = random.Random(seed)
    vocabulary = [f"word{n}" for n in range(40)]
    return [
        (f"s{s}", b"".join(message("user", " ".join(rng.choices(vocabulary, k=5)), 20 * s + n) for n in range(10)))
        for s in range(12)
    ]


QUERIES = ("word1 word2", "word3", "word4 word5 word6 word7", "", '"word1 word8"')


def answers(home):
    return [[(h.turn_id, h.run_id, round(h.score, 9)) for h in home.search(q, limit=15).hits] for q in QUERIES]


def test_the_order_of_import_changes_no_answer(opened, message):
    """X39: two homes, other order, other machine of the caller's naming: the same order and the same digest."""
    sessions = spoken(message, 7)
    first, second = opened("one"), opened("two")
    for session, data in sessions:
        capture(first, session, data)
    for session, data in reversed(sessions):
        capture(second, session, data)
    assert answers(first) == answers(first) == answers(second)
    assert first.upkeep.digest() == second.upkeep.digest()


@pytest.mark.index_file("it asks FTS5 for its own check")
def test_deleted_index_is_rebuilt_equal(opened, message):
    """A05."""
    home = opened()
    for session, data in spoken(message, 8):
        capture(home, session, data)
    before, digest = answers(home), home.upkeep.digest()
    drop_index(home)
    again = opened()
    again.upkeep.rebuild()
    assert answers(again) == before and again.upkeep.digest() == digest
    check_integrity(again.index())


def test_a_call_is_shown_in_words_and_found_by_its_input(home, claude):
    call = {"file_path": "/w/tide/server.py", "old_string": 'PORT = "1"\n', "new_string": 'PORT = "8642"\n'}
    lines = [
        claude("user", "change the harbour port", "u1", 0),
        claude("assistant", [{"type": "tool_use", "id": "t1", "name": "Edit", "input": call}], "a1", 1),
    ]
    capture(home, "s", *lines, runtime="claude-code", cwd="/w/tide")
    words = 'edited `server.py`\n- PORT = "1"\n\n+ PORT = "8642"\n'
    (hit,) = home.search("8642").hits
    assert (hit.text, hit.kind) == (words, "call")
    assert home.search("8642", scan=True).hits[0].text == words
    assert home.search("old_string").hits[0].turn_id == hit.turn_id  # the index holds the input as it was
    cue = next(cue for cue in home.recall("harbour PORT 8642", cwd="/w/tide").cues if cue.turn_id == hit.turn_id)
    assert cue.text == words.strip()
    assert home.preview(hit.turn_id) == 'edited `server.py` - PORT = "1" + PORT = "8642"'
    assert [chunk.text for chunk in home.runs.first_chunks([hit.turn_id])[hit.turn_id]] == [words]


def test_a_long_call_names_its_beginning_in_every_chunk(home, claude):
    call = {
        "file_path": "/w/tide/plan.md",
        "content": "\n".join(f"step {n} of the plan" for n in range(400)) + " zanzibar",
    }
    line = claude("assistant", [{"type": "tool_use", "id": "t1", "name": "Write", "input": call}], "a1", 1)
    capture(home, "s", claude("user", "write the plan", "u1", 0), line, runtime="claude-code", cwd="/w/tide")
    (hit,) = home.search("zanzibar").hits
    assert hit.chunk > 2 and hit.text.startswith("wrote `plan.md`\n…") and hit.text.endswith("plan zanzibar")
    cue = next(cue for cue in home.recall("where is zanzibar?", cwd="/w/tide").cues if cue.turn_id == hit.turn_id)
    assert cue.text.endswith("plan zanzibar") and "\\n" not in cue.text


def test_a_hit_is_titled_by_the_first_request_of_its_session(home, message):
    first, later = message("user", "Repair the harbour light.", 0), message("user", "ok and now the zanzibar", 1)
    capture(home, "s", first)
    home.capture(later, runtime="messages", session="s", from_offset=len(first))
    assert [hit.title for hit in home.search("zanzibar").hits] == ["Repair the harbour light."]
