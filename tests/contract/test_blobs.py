"""What every place of blobs must do: a folder, and an S3-compatible store on a real server."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.errors import TierFault, UsageError
from perdure.workflow.blobs import Blobs, FolderBlobs, ObjectBlobs, open_blobs
from rig.tier_servers import ObjectServer

LOG = "workflows/wf=2E1/scratchpads/s1/ada"
WRITER = """
import sys
from perdure.workflow.blobs import open_blobs
blobs = open_blobs(sys.argv[1])
for n in range(40):
    blobs.append(sys.argv[2], b'{"writer": %s, "n": %d}' % (sys.argv[3].encode(), n), entry_name=f"{sys.argv[3]}-{n}",
                 at_ns=1_800_000_000_000_000_000 + n)
"""


@pytest.fixture(params=["folder", "objects"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a place."""
    if request.param == "folder":
        return str(tmp_path / "blobs")
    address: str = request.getfixturevalue("object_address")
    return address


@pytest.fixture
def blobs(place: str) -> Blobs:
    return open_blobs(place)


def append(blobs: Blobs, *entries: bytes, log: str = LOG) -> None:
    for n, entry in enumerate(entries):
        blobs.append(log, entry, entry_name=entry.decode(), at_ns=1_800_000_000_000_000_000 + n)


def test_the_newest_entries_come_oldest_first(blobs: Blobs):
    append(blobs, *(str(n).encode() for n in range(7)))
    append(blobs, b"other", log=f"{LOG}a")
    assert blobs.read_newest(LOG, 3) == [b"4", b"5", b"6"]
    assert blobs.read_newest(LOG, 100) == [b"0", b"1", b"2", b"3", b"4", b"5", b"6"]
    assert blobs.read_newest(LOG, 0) == [] and blobs.read_newest("nothing", 3) == []


def test_blobs_are_put_got_and_listed(blobs: Blobs):
    assert blobs.get("a/b") is None and blobs.list_names("a") == []
    blobs.put("a/b", b"one")
    blobs.put("a/b", b"two")
    assert blobs.put_new("a/c", b"first") and not blobs.put_new("a/c", b"second")
    assert (blobs.get("a/b"), blobs.get("a/c")) == (b"two", b"first")
    assert blobs.list_names("a") == ["a/b", "a/c"]


@pytest.mark.parametrize("age_s", [0, 30, 5_000, 10**8])
def test_newest_of_many_are_found_however_old_they_are(place: str, blobs: Blobs, age_s: int):
    """A log that was written long ago, and then goes on: also for one who knows older entries of it."""
    at_ns = time.time_ns() - age_s * 10**9
    for n in range(30):
        blobs.append(LOG, b"%d" % n, entry_name=f"{n}", at_ns=at_ns + n)
    for reader in (blobs, open_blobs(place)):
        assert reader.read_newest(LOG, 21) == [b"%d" % n for n in range(9, 30)]
    open_blobs(place).append(LOG, b"30", entry_name="30", at_ns=time.time_ns())
    assert blobs.read_newest(LOG, 21) == [b"%d" % n for n in range(10, 31)]
    assert blobs.read_newest(LOG, 40) == [b"%d" % n for n in range(31)]


@pytest.mark.slow
def test_no_entry_of_concurrent_writers_is_lost(place: str, blobs: Blobs):
    command = [sys.executable, "-c", WRITER, place, LOG]
    writers = [subprocess.Popen([*command, str(number)]) for number in range(4)]
    assert [writer.wait(timeout=120) for writer in writers] == [0] * 4
    entries = blobs.read_newest(LOG, 1_000)
    assert len(entries) == len(set(entries)) == 160
    for number in range(4):
        own = [entry for entry in entries if b'"writer": %d,' % number in entry]
        assert own == [b'{"writer": %d, "n": %d}' % (number, n) for n in range(40)]


def test_a_torn_line_of_a_folder_stays_a_line_of_its_own(tmp_path: Path):
    blobs = FolderBlobs(tmp_path)
    append(blobs, b"one")
    path = tmp_path / f"{LOG}.jsonl"
    path.write_bytes(path.read_bytes() + b'{"to')
    append(blobs, b"two")
    assert blobs.read_newest(LOG, 9) == [b"one", b'{"to', b"two"]


def test_an_entry_that_is_put_again_is_there_once(object_server: ObjectServer):
    blobs = ObjectBlobs(object_server.store)
    append(blobs, b"again", log="again")
    append(blobs, b"again", log="again")
    assert blobs.read_newest("again", 9) == [b"again"]


def test_a_store_that_is_down_is_a_fault_of_the_tier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("obstore")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    blobs = open_blobs("s3://bucket/x")
    calls: list[Callable[[], object]] = [
        lambda: blobs.get("a"), lambda: blobs.put("a", b""), lambda: blobs.put_new("a", b""),
        lambda: blobs.list_names("a"), lambda: blobs.read_newest("a", 2), lambda: append(blobs, b"a"),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(TierFault):
            call()


def test_other_things_are_refused():
    with pytest.raises(UsageError):
        open_blobs(42)
