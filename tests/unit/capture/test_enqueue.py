"""The outbox: durable deltas, oldest first; nothing is deleted because it cannot be read."""

from datetime import UTC, datetime, timedelta

from perdure.capture import enqueue

AT = datetime(2026, 1, 1, tzinfo=UTC)
LIMITS = {"max_bytes": 1000, "max_age_s": 3600}


def test_put_and_waiting_oldest_first(tmp_path):
    box = tmp_path / "outbox"
    enqueue.write_delta(box, {"n": 2}, b"later\n", now=AT + timedelta(seconds=1))
    enqueue.write_delta(box, {"n": 1}, b"x\n\xff\xfe\n", now=AT)
    assert [(item.header, item.data) for item in enqueue.read_deltas(box)] == [
        ({"n": 1}, b"x\n\xff\xfe\n"),
        ({"n": 2}, b"later\n"),
    ]
    assert {oct(p.stat().st_mode & 0o777) for p in box.iterdir()} == {"0o600"}


def test_unreadable_is_set_aside_and_kept(tmp_path):
    for n, junk in enumerate((b"", b"\xff\xff\nx", b"[1]\nx", b"7\nx", b"{\nx")):
        (tmp_path / f"{n:020d}-0000000{n}.delta").write_bytes(junk)
    enqueue.write_delta(tmp_path, {"n": 1}, b"x\n", now=AT)
    assert [item.header for item in enqueue.read_deltas(tmp_path)] == [{"n": 1}]
    assert len(list(tmp_path.glob("*.unreadable"))) == 5


def test_backlog(tmp_path):
    """Each file is `{"n": 1}` and a newline (9 bytes) and 3 bytes of data: 24 bytes in two files."""
    assert enqueue.measure_backlog(tmp_path / "none") == enqueue.OutboxBacklog(0, 0, None)
    enqueue.write_delta(tmp_path, {"n": 1}, b"abc", now=AT)
    enqueue.write_delta(tmp_path, {"n": 1}, b"abc", now=AT + timedelta(hours=1))
    assert enqueue.measure_backlog(tmp_path) == enqueue.OutboxBacklog(2, 24, AT)


def test_file_with_another_name_breaks_nothing(tmp_path):
    (tmp_path / "note.delta").write_bytes(b"{}\nx")
    assert enqueue.measure_backlog(tmp_path).n_files == 1


def test_alarm_once_an_incident(tmp_path):
    """A file of 9 + 2,000 bytes is past 1,000: one alarm; drained it is over; then the next incident alarms again."""
    assert enqueue.raise_alarm(tmp_path, **LIMITS, now=AT) is None
    waiting = enqueue.write_delta(tmp_path, {"n": 1}, b"x" * 2000, now=AT)
    first = enqueue.raise_alarm(tmp_path, **LIMITS, now=AT)
    assert first is not None and "1 captures (2009 bytes)" in first
    assert enqueue.raise_alarm(tmp_path, **LIMITS, now=AT) is None
    waiting.unlink()
    assert enqueue.raise_alarm(tmp_path, **LIMITS, now=AT) is None
    enqueue.write_delta(tmp_path, {"n": 1}, b"x", now=AT)
    assert enqueue.raise_alarm(tmp_path, **LIMITS, now=AT + timedelta(seconds=3600)) is None
    late = enqueue.raise_alarm(tmp_path, **LIMITS, now=AT + timedelta(seconds=3660))
    assert late is not None and "for 61 minutes" in late
