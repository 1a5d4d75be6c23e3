from datetime import UTC, datetime

import pytest

from perdure.archive import injections
from perdure.archive.journal import Journal

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def give(journal, session, turns, **more):
    data = {"runtime": "pi", "session": session, "agent": "", "nonce": turns[0], "digest": "d", "turns": turns, **more}
    journal.append(injections.EVENT_TYPE, data, now=NOW)


@pytest.mark.parametrize("block_bytes", [50, 300, 1 << 20])
def test_injected_context_is_read_whole_across_read_blocks(tmp_path, monkeypatch, block_bytes):
    monkeypatch.setattr("perdure.archive.journal._BLOCK_BYTES", block_bytes)
    journal = Journal(tmp_path / "journal", home=tmp_path)
    for n in range(20):
        give(journal, f"s{n % 3}", [f"t{n}"])
    assert injections.read_injected_context(journal, "pi", "s1").turns == {"t1", "t4", "t7", "t10", "t13", "t16", "t19"}
    assert injections.read_injected_context(journal, "codex", "s1").turns == frozenset()
    assert injections.read_injected_context(journal, "pi", "s").turns == frozenset()
    journal.append(injections.RESET, {"runtime": "pi", "session": "s1", "agent": "", "cause": "compact"}, now=NOW)
    give(journal, "s1", ["t99"])
    found = injections.read_injected_context(journal, "pi", "s1")
    assert (found.turns, found.since_at, found.n_injected) == ({"t99"}, NOW, 1)


def test_torn_last_line_is_no_event(tmp_path):
    journal = Journal(tmp_path / "journal", home=tmp_path)
    give(journal, "s1", ["t1"])
    give(journal, "s1", ["t2"])
    (path,) = journal.list_files()
    path.write_bytes(path.read_bytes()[:-5])
    assert injections.read_injected_context(journal, "pi", "s1").turns == {"t1"}
