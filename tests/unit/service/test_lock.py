"""One resident process a home: the lock, and who holds it."""

import json
from datetime import UTC, datetime

import pytest

from perdure.capture import events
from perdure.errors import AlreadyServing
from perdure.service import lock

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)


def test_only_one_process_holds_the_lock_and_a_second_learns_who(tmp_path):
    with lock.hold_lock(tmp_path, now=NOW):
        who = lock.find_resident(tmp_path)
        assert who.since_at == NOW
        refused = pytest.raises(AlreadyServing, match=f"process {who.pid} since 2026-05-04")
        with refused, lock.hold_lock(tmp_path, now=NOW):
            pass
    assert lock.find_resident(tmp_path) is None
    (tmp_path / "run" / "serve.json").write_text(json.dumps({"pid": 1, "since_at": NOW.isoformat()}))
    assert lock.find_resident(tmp_path) is None
    with lock.hold_lock(tmp_path, now=NOW):
        pass


def test_killed_process_is_told_from_one_that_ended(tmp_path):
    assert not events.has_resident_died(tmp_path)
    with lock.hold_lock(tmp_path, now=NOW):
        assert not events.has_resident_died(tmp_path)
    assert not events.has_resident_died(tmp_path)
    with pytest.raises(RuntimeError), lock.hold_lock(tmp_path, now=NOW):
        raise RuntimeError("a crash")
    assert events.has_resident_died(tmp_path)
    with lock.hold_lock(tmp_path, now=NOW):
        pass
    assert not events.has_resident_died(tmp_path)
