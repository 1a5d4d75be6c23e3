"""The log, read from its end."""

from perdure.capture import log


def numbers(home, n_bytes, what="answered"):
    return [line["n"] for line in log.newest(home, what=what, n_bytes=n_bytes)]


def test_the_newest_lines_come_first_and_no_more_is_read_than_asked(tmp_path, monkeypatch):
    for n in range(4):
        log.note(tmp_path, "answered", n=n)
        log.note(tmp_path, "captured", n=n)
    assert numbers(tmp_path, 1 << 20) == [3, 2, 1, 0]
    assert numbers(tmp_path, 1 << 20, what="captured") == [3, 2, 1, 0]
    size = log.path_of(tmp_path).stat().st_size
    assert numbers(tmp_path, size * 3 // 8 + 1) == [3], "the line that is cut is none"
    monkeypatch.setattr(log, "MAX_BYTES", 1)
    log.note(tmp_path, "answered", n=4)  # is put aside at once
    log.note(tmp_path, "answered", n=5)
    log.path_of(tmp_path).write_bytes(b'{"no line of ours"\n')
    assert numbers(tmp_path, 1 << 20) == [5]


def test_without_a_log_there_is_nothing(tmp_path):
    assert numbers(tmp_path, 1000) == []


def test_what_the_newer_file_took_is_not_read_of_the_older_once_more(tmp_path):
    for n in range(4):
        log.note(tmp_path, "answered", n=n)
    path = log.path_of(tmp_path)
    path.replace(path.with_name("log.1.jsonl"))
    for n in range(4, 8):
        log.note(tmp_path, "answered", n=n)
    a_line = path.stat().st_size // 4
    assert numbers(tmp_path, path.stat().st_size + a_line * 3 // 2) == [7, 6, 5, 4, 3]
