"""Memories as rows: they follow the journal, whatever its order; lists show pages; a search finds by word and path."""

from datetime import timedelta
from itertools import permutations
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from perdure.archive import memory_events
from perdure.archive.journal import Journal
from perdure.index import memory_rows, visibility
from perdure.index.apply_journals import apply_journals
from perdure.index.memory_rows import ListRange, MemoryFilter
from perdure.index.rebuild import compute_digest
from perdure.types import Principal, Span
from rig.index_rows import ADA, BOB, START, IndexFile, get_span, get_turn_id, make_memory, say, share


def texts(memories):
    return [memory.text for memory in memories]


def search(file, query, *, principal=ADA, limit=10, fits=lambda memory: memory.is_current):
    hits = memory_rows.search_memories(file.index, principal, query, None, limit=limit, fits=fits)
    return [(hit.memory, hit.score) for hit in hits]


def list_all(file, user="ada"):
    return {memory.memory_id: memory for memory in memory_rows.list_memories(file.index, user)}


# following the journal ------------------------------------------------------------------------------------------


def test_applying_a_journal_twice_writes_nothing(file):
    file.add_memories(make_memory("port 8080", "port"), make_memory("port 9090", "port", day=1))
    digest = compute_digest(file.index)
    assert file.follow() == 0 and compute_digest(file.index) == digest


def test_new_event_writes_only_the_rows_of_its_chain(file):
    """The new port and the one that it supersedes are written; the editor is not touched."""
    old, new = make_memory("port 8080", "port"), make_memory("port 9090", "Port", day=1)
    file.add_memories(old, make_memory("vim", "editor", n=1))
    file.append_ops(memory_events.build_create_op(new))
    assert file.follow() == 2
    rows = list_all(file)
    assert rows[old.memory_id].superseded_by == new.memory_id and rows[new.memory_id].is_current
    chain = memory_rows.list_chain(file.index, "ada", memory_rows.MemoryChain("default", "", "port"))
    assert texts(chain) == ["port 8080", "port 9090"]


def test_chain_is_read_by_its_index(file):
    """With 20,000 memories in other chains a recall read all of them for each of its beliefs: 50 ms each time."""
    plan = file.index.select(f"EXPLAIN QUERY PLAN {memory_rows.CHAIN_QUERY}", 1, "default", "", "port")
    assert "memory_chain" in plan[0][-1]


def test_changed_path_moves_a_memory_between_chains(file):
    """Both chains are settled again: the earlier port becomes current, and the moved one stands alone."""
    old, new = make_memory("port 8080", "port"), make_memory("port 9090", "port", day=1)
    file.add_memories(old, new)
    file.append_ops(memory_events.build_change_op(new.memory_id, path="staging/port"))
    file.follow()
    assert all(memory.is_current for memory in list_all(file).values())


def test_retired_memory_has_no_words_until_it_returns(file):
    memory = make_memory("the barnacle rule", "rules")
    file.add_memories(memory)
    for is_retired in (True, False):
        file.append_ops(memory_events.build_change_op(memory.memory_id, retired=is_retired))
        file.follow()
        assert len(file.index.select('SELECT rowid FROM "words_1" WHERE "words_1" MATCH \'barnacle\'')) == (
            0 if is_retired else 1
        )
        assert len(search(file, "barnacle", fits=lambda _: True)) == (0 if is_retired else 1)


def test_memory_that_left_the_journal_leaves_every_table(file):
    """`forget` rewrites the journal; the index then replays it from its start."""
    keep, drop = make_memory("keep", "a"), make_memory("drop", "b", n=1, sources=(Span("r", 0, 9),))
    file.add_memories(keep, drop)
    file.get_journal().rewrite(
        memory_events.EVENT_TYPE,
        lambda event: event.data | {"ops": [op for op in event.data["ops"] if op["id"] != drop.memory_id]},
    )
    file.follow()
    assert set(list_all(file)) == {keep.memory_id}
    for table in ("chunk", "chunk_text", "memory"):
        assert file.index.select(f"SELECT count(*) FROM {table}") == [(1,)]
    assert file.index.select("SELECT * FROM memory_source") == []


def test_range_that_was_mined_twice_counts_once(file):
    """Two machines mined the same bytes: the first batch wins, and of the other nothing is kept."""
    file.add_memories(make_memory("first", "a"), batch=("src", 0, 100))
    file.add_memories(make_memory("second", "b", n=1), batch=("src", 50, 150))
    file.add_memories(make_memory("third", "c", n=2), batch=("src", 100, 150))
    assert sorted(texts(list_all(file).values())) == ["first", "third"]
    assert memory_rows.list_mined_ranges(file.index, "ada") == {"src": [(0, 100), (100, 150)]}


OPERATIONS = [
    lambda a, b: memory_events.build_create_op(a),
    lambda a, b: memory_events.build_create_op(b),
    lambda a, b: memory_events.build_reinforce_op(a.memory_id, stated_at=START + timedelta(days=3)),
    lambda a, b: memory_events.build_change_op(a.memory_id, pinned=True),
    lambda a, b: memory_events.build_change_op(b.memory_id, retired=True),
]  # fmt: skip
A, B = make_memory("port 8080", "port"), make_memory("port 9090", "port", day=1, n=1)


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from((0, 1)), st.integers(0, len(OPERATIONS) - 1)), min_size=1, max_size=8),
    st.sampled_from(list(permutations((0, 1)))), st.booleans(),
)  # fmt: skip
@example([(1, 0), (0, 2)], (1, 0), True)  # said again on the machine that is read first
def test_journals_of_two_machines_merge_to_one_index_in_any_order(events, order, is_followed_between):
    """Each machine appends its events; homes that merge them one way or the other hold the same rows."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        for n in (0, 1):
            (root / f"m{n}").mkdir()
        machines = [Journal(root / f"m{n}" / "journal" / "ada", home=root / f"m{n}") for n in (0, 1)]
        for n, (machine, operation) in enumerate(events):
            data = memory_events.build_event_data([OPERATIONS[operation](A, B)], by="owner")
            machines[machine].append(memory_events.EVENT_TYPE, data, now=START + timedelta(minutes=n))
        digests, states = [], []
        for name, merge_order in (("x", (0, 1)), ("y", order)):
            (root / name).mkdir()
            file = IndexFile(root / name)
            journal = file.get_journal()
            for machine in merge_order:
                if machines[machine].root.is_dir():
                    journal.merge_from(machines[machine].root)
                if is_followed_between and journal.root.is_dir():
                    apply_journals(file.index, [journal.root])
            apply_journals(file.index, [journal.root])
            digests.append(compute_digest(file.index))
            states.append(list_all(file))
            file.close()
        assert states[0] == states[1] and digests[0] == digests[1]


# lists ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def many(file):
    """Five memories on four paths; the old port is superseded, and the rule is pinned."""
    file.add_memories(
        make_memory("port 8080", "staging/port"), make_memory("port 9090", "staging/port", day=1),
        make_memory("host a", "staging/host", day=2, project="/w/tide"),
        make_memory("vim", "editor", day=3, kind="preference"),
        make_memory("ask first", "staging-rules", day=4, pinned=True, trust="agent"),
    )  # fmt: skip
    return file


def page(file, *, order="subject", offset=0, limit=10, **fields):
    listed = memory_rows.list_page(
        file.index, "ada", MemoryFilter(**fields), order=order, list_range=ListRange(offset, limit)
    )
    return texts(listed)


def test_list_has_pinned_first_and_then_the_subjects(many):
    assert page(many) == ["ask first", "vim", "host a", "port 9090"]
    assert page(many, order="newest") == ["ask first", "vim", "host a", "port 9090"]
    assert page(many, every=True, prefix="staging") == [
        "host a",
        "port 9090",
        "port 8080",
    ]
    assert page(many, offset=1, limit=2) == ["vim", "host a"] and page(many, offset=9) == []


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"prefix": "staging"}, {"host a", "port 9090"}),  # whole parts: staging-rules is another subject
        ({"prefix": "staging/port"}, {"port 9090"}),
        ({"kind": "preference"}, {"vim"}),
        ({"project": "/w/tide"}, {"host a"}),
        ({"project": ""}, {"ask first", "vim", "port 9090"}),
        ({"trust": "agent"}, {"ask first"}),
        ({"every": True, "prefix": "staging/port"}, {"port 9090", "port 8080"}),
        ({"prefix": "st%"}, set()),
    ],
)
def test_list_and_count_agree_on_every_filter(many, fields, expected):
    assert set(page(many, **fields)) == expected
    assert memory_rows.count_memories(many.index, "ada", MemoryFilter(**fields)) == len(expected)


def test_subjects_are_counted_by_the_next_part_of_the_path(many):
    assert memory_rows.count_subjects(many.index, "ada", MemoryFilter()) == {
        "editor": 1, "staging": 2, "staging-rules": 1,
    }  # fmt: skip
    below = memory_rows.count_subjects(many.index, "ada", MemoryFilter(prefix="staging", every=True))
    assert below == {"host": 1, "port": 2}


def test_lists_of_another_user_are_empty(many):
    assert page(many, prefix="staging") and memory_rows.list_memories(many.index, "bob") == []
    assert memory_rows.count_memories(many.index, "bob", MemoryFilter(every=True)) == 0
    assert memory_rows.list_projects(many.index, "ada") == ["/w/tide"]
    assert memory_rows.list_projects(many.index, "bob") == [] and memory_rows.list_uses(many.index, "bob") == []
    assert {use.path: use.is_current for use in memory_rows.list_uses(many.index, "ada")}["editor"]


def test_more_ids_than_fit_one_statement_are_all_found(file):
    memories = [make_memory(f"text {n}", f"path{n}", n=n) for n in range(600)]
    file.add_memories(*memories)
    found = memory_rows.get_memories(file.index, "ada", [memory.memory_id for memory in memories])
    assert len(found) == 600
    assert memory_rows.get_memories(file.index, "bob", [memories[0].memory_id]) == []


# search ---------------------------------------------------------------------------------------------------------


def test_memory_is_found_by_word_and_by_path(many):
    assert texts(memory for memory, _ in search(many, "port")) == ["port 9090"]
    assert texts(memory for memory, _ in search(many, "editor")) == ["vim"]  # by its path alone
    assert search(many, "editor")[0][1] == 0.0
    assert search(many, "edit") == []
    assert texts(memory for memory, _ in search(many, "", limit=2)) == ["ask first", "vim"]  # no words: the newest
    assert search(many, "port", principal=BOB) == []


def test_search_reads_on_until_enough_memories_fit(file):
    """Forty superseded states match better than the current one: candidates widen by four until one fits."""
    states = [make_memory(f"quay quay {n}", "berth", day=n, n=n) for n in range(40)]
    current = make_memory("the quay among many other words of the text", "berth", day=99, n=99)
    file.add_memories(*states, current)
    assert texts(memory for memory, _ in search(file, "quay", limit=1)) == [current.text]


def test_source_leads_to_its_turn_while_that_exists(file):
    run = file.add_run("s", say("zero"), say("one"))
    gone = Span("0" * 26, 0, 100)
    memory = make_memory("one", "a", sources=(get_span(run, 1), gone))
    file.add_memories(memory)
    assert memory_rows.list_source_turns(file.index, memory) == [
        (get_span(run, 1), get_turn_id(run, 1)), (gone, None),
    ]  # fmt: skip


# what others share ----------------------------------------------------------------------------------------------


def test_shared_memory_shows_its_words_and_nothing_of_its_use(file):
    """A grantee sees no counts, no pin and no secret, and it does not pass for their own words."""
    secret = "password=hunter2hunter2"
    file.add_memories(
        make_memory(f"the gate {secret}", "gate", agent="mira", pinned=True, conversation="c"),
        make_memory("private gate", "other", n=1),
    )
    file.append_ops(memory_events.build_reinforce_op(A.memory_id, stated_at=START))
    file.follow()
    reader = share("agent", "mira")
    ((memory, score),) = search(file, "gate", principal=reader)
    assert (memory.shared_by, memory.trust, score) == ("ada", "agent", 1.0)
    assert "hunter2" not in memory.text and memory.text.startswith("the gate")
    assert (memory.pinned, memory.n_used, memory.order) == (False, 0, "")
    scope = visibility.get_read_scope(file.index, reader)
    assert [one.memory_id for one in memory_rows.list_shared(file.index, scope)] == [memory.memory_id]
    assert memory_rows.list_shared(file.index, visibility.get_read_scope(file.index, BOB)) == []


def test_current_state_of_a_shared_chain_is_chosen_among_readable_ones(file):
    """The newest port came from a run that is not shared; for the reader the one before is current."""
    open_run = file.add_run("s", say("port 8080"), tags=("open",))
    shut_run = file.add_run("t", say("port 9090", minute=60))
    old = make_memory("port 8080", "port", how="stated", sources=(get_span(open_run, 0),))
    new = make_memory("port 9090", "port", day=1, how="stated", sources=(get_span(shut_run, 0),))
    file.add_memories(old, new)
    ((memory, _),) = search(file, "port", principal=share("tag", "open"))
    assert (memory.text, memory.is_current) == ("port 8080", True)
    scope = visibility.get_read_scope(file.index, share("tag", "open"))
    numbers = memory_rows.find_numbers(file.index, 1, [old.memory_id, new.memory_id])
    assert set(memory_rows.list_readable(file.index, scope, list(numbers.values()))) == {numbers[old.memory_id]}
    chain = memory_rows.list_shared_chain(file.index, scope, numbers[old.memory_id], as_of=START - timedelta(days=1))
    assert chain == []


@pytest.mark.parametrize("reader", ["bob", "eve", "ada"])
def test_expired_and_foreign_grants_open_nothing(file, reader):
    file.add_memories(make_memory("the gate", "gate", agent="mira"))
    expired = share("agent", "mira", until_at=START)
    foreign = replace(share("agent", "mira"), user=reader)
    assert search(file, "gate", principal=expired) == []
    expected = ["the gate"] if reader in ("bob", "ada") else []
    assert texts(memory for memory, _ in search(file, "gate", principal=foreign)) == expected
    assert search(file, "gate", principal=Principal("eve")) == []
