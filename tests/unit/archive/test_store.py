"""The ledger: ends, changes that are never numbered twice, and many processes at once."""

import hashlib
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from perdure.archive.store import Ledger
from perdure.errors import ArchiveFault
from perdure.types import Run, Source

AT = datetime(2026, 1, 1, tzinfo=UTC)
SOURCE = Source("ada", "pi", "s")


def run(n, low, high, source=SOURCE):
    sha = hashlib.sha256(str(n).encode()).hexdigest()
    return Run(f"{n:026d}", source, "m", "default", None, "c", low, high, sha, AT, AT, AT)


@pytest.fixture
def ledger(tmp_path):
    with_ = Ledger(tmp_path / "cache" / "ledger.db")
    yield with_
    with_.close()


def test_begun_and_committed_runs_move_the_end(ledger):
    one, two = run(1, 0, 10), run(2, 10, 30)
    ledger.begin([one])
    assert ledger.get_end(SOURCE) == 0 and [held.run_id for held in ledger.list_pending()] == [one.run_id]
    ledger.commit([one])
    ledger.commit([two])
    assert ledger.get_end(SOURCE) == 30 and ledger.list_pending() == [] and ledger.get_last_change() == 2
    assert [held.from_offset for held in ledger.list_source_runs(SOURCE, low=9, high=10)] == [0]
    assert [held.from_offset for held in ledger.list_source_runs(SOURCE, low=10, high=11)] == [10]


def test_no_change_number_is_given_twice(ledger):
    """Changes 1, 2; the second is reopened and committed: 3. It is dropped, another committed: 4."""
    one, two = run(1, 0, 10), run(2, 10, 30)
    ledger.commit([one, two])
    ledger.reopen(two.run_id)
    assert ledger.get_last_change() == 2
    ledger.commit([two])
    assert [held.change for held in ledger.list_changes(0)] == [1, 3]
    ledger.drop([two.run_id])
    assert ledger.get_end(SOURCE) == 10
    ledger.commit([run(3, 10, 20)])
    assert [held.change for held in ledger.list_changes(0)] == [1, 4]
    ledger.renumber([one.run_id])
    assert [held.change for held in ledger.list_changes(4)] == [5] and ledger.count_after(3) == 2


def test_idle_conversations_are_listed(ledger):
    ledger.commit([run(1, 0, 10), run(2, 10, 30)])
    second = int(AT.timestamp())
    assert ledger.list_idle_conversations(second) == []
    assert ledger.list_idle_conversations(second + 1) == [("ada", "pi", "c")]
    ledger.begin([run(3, 30, 40)])
    assert ledger.list_idle_conversations(second + 1) == []  # a commit is under way
    ledger.drop([run(3, 30, 40).run_id])
    ledger.set_pack([run(1, 0, 10).run_id, run(2, 10, 30).run_id], "packs/x")
    assert ledger.list_idle_conversations(second + 1) == []


_WRITER = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from perdure.archive.store import Ledger
from perdure.errors import ArchiveFault
from perdure.types import Run, Source
who, ledger = int(sys.argv[2]), Ledger(Path(sys.argv[1]))
at = datetime(2026, 1, 1, tzinfo=UTC)
for n in range(40):
    source = Source("ada", "pi", f"s{who}x{n % 3}")
    run = Run(f"{who * 1000 + n:026d}", source, "m", "default", None, "c", n, n + 1, "0" * 64, at, at, at)
    ledger.begin([run])
    ledger.commit([run])
    ledger.set_seen(f"/x{who}/{n}", n, n, "")
    ledger.set_applied([f"e{who}x{n}"])
"""


def test_processes_that_write_at_once(ledger, tmp_path):
    """Four processes, none of which takes any lock but SQLite's: 160 runs with 160 different numbers, no refusal."""
    command = [sys.executable, "-c", _WRITER, str(tmp_path / "cache" / "ledger.db")]
    running = [subprocess.Popen([*command, str(who)]) for who in range(4)]
    assert [process.wait(timeout=60) for process in running] == [0] * 4
    assert [held.change for held in ledger.list_changes(0)] == list(range(1, 161))
    assert len(ledger.list_applied()) == 160 and ledger.get_seen("/x3/39") == (39, 39, "")


def test_damaged_pages_are_made_again_at_the_next_opening(tmp_path):
    """The header is whole, so the file opens; a run that is committed into a deleted file would be lost."""
    path = tmp_path / "cache" / "ledger.db"
    ledger = Ledger(path)
    ledger.commit([run(n, 10 * n, 10 * n + 10) for n in range(300)])
    ledger.close()
    content = path.read_bytes()
    path.write_bytes(content[:8192] + b"\xa5" * (len(content) - 8192))
    damaged, other = Ledger(path), Ledger(path)
    with pytest.raises(ArchiveFault, match="made again"):
        damaged.list_changes(0)
    again = Ledger(path)
    assert again.is_new
    with pytest.raises(ArchiveFault, match="made again"):
        other.set_meta("key", "value")
    again.commit([run(1, 0, 10)])
    assert again.get_end(SOURCE) == 10
    for opened in (damaged, other, again):
        opened.close()
