"""The open end of a session's log: durable when append returns, whole lines only, held by one process."""

import json
import os
import subprocess
import sys

import pytest

from perdure.capture import session_file
from perdure.capture.session_file import SessionFile, measure_open, read_unarchived, to_path
from perdure.errors import DiskFull, SessionHeld

SESSION = "s0123456789"
ORIGIN = {"origin": {"runtime": "perdure"}, "from_offset": 40, "user": "ada"}


def write(home, *lines, header=ORIGIN):
    file = SessionFile(home, SESSION)
    file.begin(header)
    for line in lines:
        file.append(line)
    return file


def test_entries_come_back_with_their_offsets(tmp_path):
    with write(tmp_path, b"one\n", b"three\n") as file:
        assert file.read() == (ORIGIN, b"one\nthree\n")
        assert list(read_unarchived(tmp_path, SESSION, "ada")) == [(40, b"one\n"), (44, b"three\n")]


def test_a_begun_file_is_empty_until_its_first_entry(tmp_path):
    with write(tmp_path, b"one\n") as file:
        file.begin({**ORIGIN, "from_offset": 44})
        assert to_path(tmp_path, SESSION).read_bytes() == b""
        assert file.read() == ({}, b"")
        file.append(b"two\n")
        assert list(read_unarchived(tmp_path, SESSION, "ada")) == [(44, b"two\n")]


def test_every_cut_keeps_whole_lines_and_sets_the_rest_aside(tmp_path):
    lines = [b"one\n", b'{"two": 2}\n', b"three\n"]
    write(tmp_path, *lines).close()
    data = to_path(tmp_path, SESSION).read_bytes()
    header_end = data.index(b"\n") + 1
    for n_bytes in range(len(data) + 1):
        home = tmp_path / str(n_bytes)
        (home / "outbox" / "sessions").mkdir(parents=True)
        to_path(home, SESSION).write_bytes(data[:n_bytes])
        with SessionFile(home, SESSION) as file:
            entries = file.read()[1]
            complete = data[header_end : data.rfind(b"\n", 0, n_bytes) + 1] if n_bytes >= header_end else b""
            assert entries == complete
            torn = data[data.rfind(b"\n", 0, n_bytes) + 1 : n_bytes]
            assert b"".join(path.read_bytes() for path in measure_open(home).aside_paths) == torn
            file.begin(ORIGIN)
            file.append(b"after\n")
            assert file.read() == (ORIGIN, b"after\n")


def test_a_file_without_a_readable_header_is_set_aside(tmp_path):
    (tmp_path / "outbox" / "sessions").mkdir(parents=True)
    for header in (b"[1]", b"{}", b'{"from_offset":-1}', b"\xff", b"[" * 100_000, b'{"from_offset":true}'):
        to_path(tmp_path, SESSION).write_bytes(header + b"\nentry\n")
        assert list(read_unarchived(tmp_path, SESSION, "ada")) == []
        with SessionFile(tmp_path, SESSION) as file:
            assert file.read() == ({}, b"")
    assert len(measure_open(tmp_path).aside_paths) == 6


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failed_append_leaves_the_file_as_it_was(tmp_path, monkeypatch, fault):
    """Of half a line that is written when the disk is full, or Ctrl-C strikes, nothing stays."""
    with write(tmp_path, b"one\n") as file:
        real_write, n_calls = os.write, []

        def write_half(descriptor, data):
            if n_calls:
                raise fault
            n_calls.append(1)
            return real_write(descriptor, bytes(data)[:2])

        monkeypatch.setattr(os, "write", write_half)
        with pytest.raises((DiskFull, KeyboardInterrupt)):
            file.append(b"second\n")
        monkeypatch.undo()
        assert file.read() == (ORIGIN, b"one\n")
        file.append(b"third\n")
        assert file.read() == (ORIGIN, b"one\nthird\n")


def test_only_one_process_holds_a_session(tmp_path):
    with write(tmp_path, b"one\n"), pytest.raises(SessionHeld, match="--fork"):
        SessionFile(tmp_path, SESSION)
    SessionFile(tmp_path, SESSION).close()


def test_a_killed_holder_gives_the_session_up(tmp_path):
    code = f"""
import os, signal, sys
sys.path[:0] = {sys.path!r}
from pathlib import Path
from perdure.capture.session_file import SessionFile
file = SessionFile(Path({str(tmp_path)!r}), {SESSION!r})
file.begin({ORIGIN!r})
file.append(b"one\\n")
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert measure_open(tmp_path)[:2] == (0, 1)
    with SessionFile(tmp_path, SESSION) as file:
        assert measure_open(tmp_path)[:2] == (1, 0)
        assert file.read()[1] == b"one\n"
        file.delete()
    assert measure_open(tmp_path) == (0, 0, 0, None, [])


def test_only_ids_become_paths(tmp_path):
    (tmp_path / "secret.jsonl").write_bytes(json.dumps(ORIGIN).encode() + b"\nline\n")
    assert list(read_unarchived(tmp_path / "home", "../../../secret", "ada")) == []
    assert [name for name in ("s0123456789", "s012345678", "S0123456789", "s01234567/9", "s0123456789\n")
            if session_file.is_session_id(name)] == ["s0123456789"]  # fmt: skip
