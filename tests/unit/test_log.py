"""The log, read from its end."""

from perdure import log


def numbers(home, n_bytes, what="answered"):
    return [line["n"] for line in log.read_newest_entries(home, entry_type=what, n_bytes=n_bytes)]


def test_newest_lines_come_first_and_reading_stops_at_the_limit(tmp_path, monkeypatch):
    for n in range(4):
        log.append_entry(tmp_path, "answered", n=n)
        log.append_entry(tmp_path, "captured", n=n)
    assert numbers(tmp_path, 1 << 20) == [3, 2, 1, 0]
    assert numbers(tmp_path, 1 << 20, what="captured") == [3, 2, 1, 0]
    size = log.to_log_path(tmp_path).stat().st_size
    assert numbers(tmp_path, size * 3 // 8 + 1) == [3], "the line that is cut is none"
    monkeypatch.setattr(log, "MAX_BYTES", 1)
    log.append_entry(tmp_path, "answered", n=4)  # is put aside at once
    log.append_entry(tmp_path, "answered", n=5)
    log.to_log_path(tmp_path).write_bytes(b'{"no line of ours"\n')
    assert numbers(tmp_path, 1 << 20) == [5]


def test_missing_log_gives_no_lines(tmp_path):
    assert numbers(tmp_path, 1000) == []


def test_reading_spans_both_log_files_within_one_limit(tmp_path):
    for n in range(4):
        log.append_entry(tmp_path, "answered", n=n)
    path = log.to_log_path(tmp_path)
    path.replace(path.with_name("log.1.jsonl"))
    for n in range(4, 8):
        log.append_entry(tmp_path, "answered", n=n)
    a_line = path.stat().st_size // 4
    assert numbers(tmp_path, path.stat().st_size + a_line * 3 // 2) == [7, 6, 5, 4, 3]
