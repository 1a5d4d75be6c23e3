"""Plain chat messages, 10,000 and 100,000 of them: building the index, asking it, its size (rows X22 and X23).

python -m benchmarks.messages
"""

from __future__ import annotations

import argparse
import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import perdure
from benchmarks import corpus
from benchmarks.common import save, scratch, table, timed
from benchmarks.search import measured

PER_FILE = 100


def write(place: Path, n: int) -> int:
    """Files of 100 messages of 20 to 400 characters; returns their bytes."""
    made, rng = corpus.make(), random.Random(5)
    n_bytes = 0
    for number in range(n // PER_FILE):
        topic = [made.words[rng.randint(300, 20_000)] for _ in range(8)]
        began_at = datetime(2025, 1, 1, tzinfo=UTC) + timedelta(hours=number)
        lines = [
            json.dumps({
                "role": "user" if i % 2 == 0 else "assistant", "session_id": f"chat-{number}",
                "content": corpus.message(made, rng, topic, rng.randint(20, 250)),
                "timestamp": (began_at + timedelta(seconds=30 * i)).isoformat(),
            }, ensure_ascii=False)
            for i in range(PER_FILE)
        ]  # fmt: skip
        body = ("\n".join(lines) + "\n").encode()
        n_bytes += len(body)
        (place / f"chat-{number}.jsonl").write_bytes(body)
    return n_bytes


def measure(n: int) -> dict[str, Any]:
    made = corpus.make()
    asked = [q for kind in ("rare word", "2-3 words", "question") for q in corpus.queries(made, kind, 40)]
    with scratch() as place:
        (place / "chats").mkdir()
        n_bytes = write(place / "chats", n)
        with perdure.open(place / "home") as home:
            with timed() as capture:
                home.import_files([place / "chats"], index=False)
            with timed() as build:
                home.upkeep.catch_up()
            found = measured(asked, home.search)
            home.index().db.pragma("wal_checkpoint(TRUNCATE)")
            size = home.index().path.stat().st_size
    return {
        "messages": n, "MB": round(n_bytes / 1e6, 1), "import ms": round(capture.wall_s * 1000),
        "index ms (wall)": round(build.wall_s * 1000), "index ms (CPU)": round(build.cpu_s * 1000),
        "query p50 ms": found["wall p50"], "query p95 ms": found["wall p95"], "cpu p95 ms": found["cpu p95"],
        "index bytes/byte": round(size / n_bytes, 2),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, nargs="*", default=[10_000, 100_000])
    options = parser.parse_args()
    rows = [measure(n) for n in options.messages]
    table("chat messages through the whole path (search: with catch-up check and filter, limit 20)", rows)
    save("messages", {"rows": rows})


if __name__ == "__main__":
    main()
