"""Import of whole files: incremental, tolerant, and sure under files that change while they are read."""

import os
import threading
from pathlib import Path

import pytest

from perdure.types import Source


def body(home, generation=0, session=None):
    runs = [home.archive.read_run(held) for held in home.archive.ledger.list_runs()]
    source = Source("ada", "messages", session or runs[0].source.session, generation)
    return b"".join(home.archive.read(held) for held in home.archive.ledger.list_source_runs(source))


def test_import_is_incremental(home, message, tmp_path):
    """A11: the first import takes the backlog, the second nothing, the third only what was added."""
    path = tmp_path / "t.jsonl"
    lines = [message("user", f"anchor {n}", n, session_id="s") for n in range(4)]
    path.write_bytes(b"".join(lines[:3]))
    done = home.import_files([path])
    assert (done.n_files, done.n_runs, done.n_bytes, done.n_unchanged) == (1, 1, len(b"".join(lines[:3])), 0)
    again = home.import_files([path])
    assert (again.n_runs, again.n_bytes, again.n_unchanged) == (0, 0, 1)
    path.write_bytes(b"".join(lines))
    more = home.import_files([path])
    assert (more.n_runs, more.n_bytes) == (1, len(lines[3]))
    assert body(home) == b"".join(lines) and len(home.search("anchor").hits) == 4


def test_touched_file_adds_nothing(home, message, tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(message("user", "anchor"))
    home.import_files([path])
    os.utime(path, (1, 1))
    assert (home.import_files([path]).n_runs, home.archive.ledger.count_all()[0]) == (0, 1)


def test_rewritten_truncated_and_restored_files_are_kept(home, message, tmp_path):
    """Rewritten: a generation beside. Truncated: nothing new. Back to the first state, and grown: it goes on there."""
    path = tmp_path / "t.jsonl"
    one, two, three = (message("user", f"anchor {n}", n, session_id="s") for n in range(3))
    path.write_bytes(one + two)
    home.import_files([path])
    path.write_bytes(one + three)
    assert home.import_files([path]).n_rewritten == 1
    path.write_bytes(one)
    assert home.import_files([path]).n_runs == 0
    path.write_bytes(one + two + three)
    done = home.import_files([path])
    assert (done.n_runs, done.n_bytes) == (1, len(three))
    assert body(home, 0) == one + two + three and body(home, 1) == one + three
    assert home.upkeep.verify().ok


def test_import_skips_its_own_home(opened, message, tmp_path):
    """The home lies below the folder that is imported: its archive is no transcript."""
    home = opened()
    (tmp_path / "t.jsonl").write_bytes(message("user", "anchor"))
    for _ in range(3):
        home.import_files([tmp_path])
    assert home.archive.ledger.count_all()[0] == 1


def test_unreadable_files_are_reported_and_the_rest_imported(home, message, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(b"\x00\x01 nothing")
    (folder / "b.jsonl").write_bytes(message("user", "anchor"))
    (folder / "c.jsonl").symlink_to(folder / "gone")
    (folder / "d.jsonl").write_bytes(b"")
    (folder / "e.jsonl").write_bytes(b'{"role":"user","content":"tor')
    (folder / "f.jsonl").mkdir()
    os.mkfifo(folder / "g.jsonl")
    done = home.import_files([folder, tmp_path / "missing.jsonl"])
    assert done.n_runs == 1
    assert {Path(path).name for path, _ in done.refused} >= {"a.jsonl", "missing.jsonl"}
    assert len(home.search("anchor").hits) == 1


def test_a_fifo_is_refused_and_not_waited_for(home, tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert home.import_files([tmp_path / "pipe.jsonl"]).n_runs == 0


def test_torn_end_waits_for_its_rest(home, message, tmp_path):
    path = tmp_path / "t.jsonl"
    whole = message("user", "anchor one", 0) + message("user", "größer anchor", 1)
    for cut in (len(whole) - 2, len(whole) - 20, whole.index("ö".encode()) + 1):
        path.write_bytes(whole[:cut])
        home.import_files([path])
        assert body(home) == message("user", "anchor one", 0)
    path.write_bytes(whole)
    home.import_files([path])
    assert body(home) == whole and len(home.search("anchor").hits) == 2


def test_file_that_grows_during_an_import_is_complete(home, message, tmp_path):
    """A thread appends in small writes, lines torn anywhere, while imports run: at the end every byte is there once."""
    path = tmp_path / "t.jsonl"
    path.write_bytes(message("user", "anchor", session_id="s"))
    data = b"".join(message("user", f"growing {n}", n) for n in range(300))

    def write():
        with path.open("ab", buffering=0) as file:
            for at in range(0, len(data), 37):
                file.write(data[at : at + 37])

    writer = threading.Thread(target=write)
    writer.start()
    while writer.is_alive():
        home.import_files([path])
    writer.join()
    home.import_files([path])
    assert body(home) == path.read_bytes()
    assert home.archive.ledger.count_all()[2] == path.stat().st_size
    assert home.upkeep.verify().ok


def test_file_rewritten_during_an_import_leaves_a_sound_archive(home, message, tmp_path):
    """A thread truncates and rewrites the file without end. Whatever was read, the archive is sound, and once the
    writer stopped, the last state is captured, whole, as one of the generations.
    """
    path = tmp_path / "t.jsonl"
    first = message("user", "anchor", session_id="s")
    path.write_bytes(first)

    def write():
        for n in range(200):
            lines = [message("user", f"state {n} line {k} " + "x" * (n * 7 % 50), k) for k in range(20)]
            path.write_bytes(first + b"".join(lines))

    writer = threading.Thread(target=write)
    writer.start()
    while writer.is_alive():
        home.import_files([path])
    writer.join()
    home.import_files([path])
    runs = [home.archive.read_run(held) for held in home.archive.ledger.list_runs()]
    states = {body(home, generation, runs[0].source.session) for generation in {run.source.generation for run in runs}}
    assert path.read_bytes() in states
    assert len(home.search('"state 199 line 19"').hits) >= 1
    assert home.upkeep.verify().ok


@pytest.mark.slow
def test_large_file_rewritten_after_a_piece_is_kept_whole(opened, tmp_path):
    """Files are read in pieces of 64 MiB. One byte changes in the second piece of 80 MB: the new state is captured
    whole, as a generation of its own, and the old one stays. Then the old state comes back and grows.
    """
    home = opened()
    path = tmp_path / "t.jsonl"
    head = b'{"role":"user","content":"anchor","session_id":"s"}\n'
    line = b'{"role":"tool","content":"' + b"0123456789" * 100_000 + b'"}\n'
    path.write_bytes(head + line * 80)
    assert home.import_files([path]).n_bytes == len(head + line * 80)
    with path.open("r+b") as file:
        file.seek(75_000_000)
        file.write(b"#")
    done = home.import_files([path])
    assert done.n_bytes == len(head + line * 80) and done.refused == []
    assert body(home, 1, "s") == path.read_bytes()
    assert body(home, 0, "s") == head + line * 80
    path.write_bytes(head + line * 80 + head)
    assert home.import_files([path]).n_bytes == len(head)
    assert body(home, 0, "s") == path.read_bytes()
