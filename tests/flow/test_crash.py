"""Eight processes write while SIGKILL strikes at random: nothing acknowledged is lost, and nothing is there twice.

A driver process forks the workers, so that a killed one is back within milliseconds. Each worker behaves like a
client: it appends lines to a transcript of its own, hands the home what it has no acknowledgement for, and notes
the acknowledged offset only after the call returned. After a kill its successor goes on from that note, not
knowing what became of the last call.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.types import Source

ROUNDS = 200  # kills
WORKERS = 8

_DRIVER = """
import json, os, random, signal, sys, time
from pathlib import Path
import perdure
from perdure.types import Origin
import perdure.home, perdure.index.keyword, perdure.index.catchup, perdure.formats, perdure.memories.explicit
perdure.memories.explicit.find_statements("We keep it in SQLite.")  # every worker forks from here, with the rules

root, n_rounds, n_workers, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])


def acknowledged(slot):
    try:
        return int((root / f"ack-{slot}").read_text() or 0)
    except (FileNotFoundError, ValueError):
        return 0


def note(slot, offset):
    path = root / f"ack-{slot}"
    path.with_suffix(".tmp").write_text(str(offset))
    path.with_suffix(".tmp").replace(path)


def grow(slot, dice):
    path = root / "clients" / f"t{slot}.jsonl"
    size = path.stat().st_size if path.exists() else 0
    with path.open("ab", buffering=0) as file:
        for _ in range(dice.randint(1, 3)):
            stamp = f"2026-01-15T09:{dice.randint(0, 59):02d}:00Z"
            content = f"zq{slot}x{size}y " + "lorem ipsum " * dice.randint(0, 20)
            line = {"role": "user", "content": content, "timestamp": stamp, "session_id": f"t{slot}"}
            size += file.write(json.dumps(line).encode() + b"\\n")
    return path


def step(home, slot, dice):
    path = grow(slot, dice)
    start = acknowledged(slot)
    data = path.read_bytes()[start:]
    origin = Origin("messages", f"t{slot}", f"t{slot}")
    if slot % 3 == 0:
        answer = home.capture(data, runtime="messages", session=f"t{slot}", from_offset=start)
        if answer.outcome == "accepted":
            rest = data[answer.to_offset - start:]
            answer = home.capture(rest, runtime="messages", session=f"t{slot}", from_offset=answer.to_offset)
        assert answer.outcome in ("stored", "already"), answer
    elif slot % 3 == 1:
        home.captures.enqueue(origin, data, from_offset=start, path=str(path))
        note(slot, start + len(data))
        home.captures.drain()
    else:
        done = home.import_files([path])
        assert not done.refused, done.refused
    note(slot, start + len(data))
    chance = dice.random()
    if chance < 0.05:
        home.upkeep.pack(idle_days=0)
    elif chance < 0.25:
        home.search(f"zq{slot}x0y lorem")


def work(slot, number):
    dice = random.Random(seed * 100003 + number)
    try:
        with perdure.open(root / "home", user="ada") as home:
            while True:
                step(home, slot, dice)
    except BaseException as error:
        import traceback
        with (root / "errors").open("a") as file:
            file.write(f"worker {slot}: {traceback.format_exc()}\\n")
        os._exit(1)


def start(slot, number):
    child = os.fork()
    if child == 0:
        work(slot, number)
    return child


dice = random.Random(seed)
perdure.open(root / "home", user="ada").close()
running = {slot: start(slot, slot) for slot in range(n_workers)}
for number in range(n_rounds):
    time.sleep(dice.uniform(0.005, 0.12))
    slot = dice.randrange(n_workers)
    os.kill(running[slot], signal.SIGKILL)
    os.waitpid(running[slot], 0)
    running[slot] = start(slot, n_workers + number)
time.sleep(0.3)
for child in running.values():
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_kill_9_at_any_moment(opened, tmp_path):
    """Two hundred kills; then every transcript up to its acknowledged offset is in the archive byte for byte, its
    runs lie end to end in one generation, every turn is found exactly once, and `verify` finds nothing wrong.
    """
    (tmp_path / "clients").mkdir()
    command = [sys.executable, "-c", _DRIVER, str(tmp_path), str(ROUNDS), str(WORKERS), "7"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert ran.returncode == 0, ran.stderr
    assert not (tmp_path / "errors").exists(), (tmp_path / "errors").read_text()
    home = opened()
    home.captures.drain()
    home.upkeep.catch_up()
    n_turns = sum(_check_slot(home, tmp_path, slot) for slot in range(WORKERS))
    problems = [finding for finding in home.upkeep.verify().findings if finding.severity == "problem"]
    assert problems == []
    assert home.index().select("SELECT count(*) FROM turn") == [(n_turns,)]
    assert home.upkeep.rebuild().same_digest
    assert n_turns > 300
    home.capture(b'{"role": "user", "content": "the end"}\n', runtime="messages", session="last")
    assert [*home.path.rglob(".*.metadata.json.*.tmp")] == []


def _check_slot(home, root: Path, slot: int) -> int:
    """Check one client's transcript; returns the number of its turns in the archive."""
    transcript = (root / "clients" / f"t{slot}.jsonl").read_bytes()
    acknowledged = int((root / f"ack-{slot}").read_text())
    helds = home.archive.ledger.list_source_runs(Source("ada", "messages", f"t{slot}"))
    assert home.archive.ledger.get_generation("ada", "messages", f"t{slot}") == 0
    at = 0
    for held in helds:
        assert held.from_offset == at, (slot, held)
        at = held.to_offset
    stored = b"".join(home.archive.read(held) for held in helds)
    assert len(stored) == at >= acknowledged
    assert stored == transcript[:at]
    words = [json.loads(line)["content"].split()[0] for line in stored.splitlines()]
    assert len(set(words)) == len(words)
    for word in words[:: max(1, len(words) // 40)] + words[-5:]:
        found = home.search(word, limit=5)
        assert [hit.text.split()[0] for hit in found.hits] == [word] and found.degraded == ()
    return len(words)
