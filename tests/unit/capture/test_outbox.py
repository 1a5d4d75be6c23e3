"""The outbox: durable deltas, oldest first; nothing is deleted because it cannot be read."""

from datetime import UTC, datetime, timedelta

from perdure.capture import outbox

AT = datetime(2026, 1, 1, tzinfo=UTC)
LIMITS = {"max_bytes": 1000, "max_age_s": 3600}


def test_put_and_waiting_oldest_first(tmp_path):
    box = tmp_path / "outbox"
    outbox.put(box, {"n": 2}, b"later\n", now=AT + timedelta(seconds=1))
    outbox.put(box, {"n": 1}, b"x\n\xff\xfe\n", now=AT)
    assert [(item.head, item.data) for item in outbox.waiting(box)] == [
        ({"n": 1}, b"x\n\xff\xfe\n"),
        ({"n": 2}, b"later\n"),
    ]
    assert {oct(p.stat().st_mode & 0o777) for p in box.iterdir()} == {"0o600"}


def test_unreadable_is_set_aside_and_kept(tmp_path):
    for n, junk in enumerate((b"", b"\xff\xff\nx", b"[1]\nx", b"7\nx", b"{\nx")):
        (tmp_path / f"{n:020d}-0000000{n}.delta").write_bytes(junk)
    outbox.put(tmp_path, {"n": 1}, b"x\n", now=AT)
    assert [item.head for item in outbox.waiting(tmp_path)] == [{"n": 1}]
    assert len(list(tmp_path.glob("*.unreadable"))) == 5


def test_backlog(tmp_path):
    """Each file is `{"n": 1}` and a newline (9 bytes) and 3 bytes of data: 24 bytes in two files."""
    assert outbox.backlog(tmp_path / "none") == outbox.Backlog(0, 0, None)
    outbox.put(tmp_path, {"n": 1}, b"abc", now=AT)
    outbox.put(tmp_path, {"n": 1}, b"abc", now=AT + timedelta(hours=1))
    assert outbox.backlog(tmp_path) == outbox.Backlog(2, 24, AT)


def test_a_file_of_another_name_breaks_nothing(tmp_path):
    (tmp_path / "note.delta").write_bytes(b"{}\nx")
    assert outbox.backlog(tmp_path).n_files == 1


def test_alarm_once_an_incident(tmp_path):
    """A file of 9 + 2,000 bytes is past 1,000: one alarm; drained it is over; then the next incident alarms again."""
    assert outbox.alarm(tmp_path, **LIMITS, now=AT) is None
    waiting = outbox.put(tmp_path, {"n": 1}, b"x" * 2000, now=AT)
    first = outbox.alarm(tmp_path, **LIMITS, now=AT)
    assert first is not None and "1 captures (2009 bytes)" in first
    assert outbox.alarm(tmp_path, **LIMITS, now=AT) is None
    waiting.unlink()
    assert outbox.alarm(tmp_path, **LIMITS, now=AT) is None
    outbox.put(tmp_path, {"n": 1}, b"x", now=AT)
    assert outbox.alarm(tmp_path, **LIMITS, now=AT + timedelta(seconds=3600)) is None
    late = outbox.alarm(tmp_path, **LIMITS, now=AT + timedelta(seconds=3660))
    assert late is not None and "for 61 minutes" in late
