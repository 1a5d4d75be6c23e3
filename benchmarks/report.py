"""The report of a large home: how long it takes.

    python -m benchmarks.report [--chunks 100000] [--recalls 1000] [--memories 5000]

The index holds made text; the journal has so many recalls of six texts in the week that is reported, each beside a
message of that text, and each judged.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import perdure
from benchmarks import corpus
from benchmarks.common import machine, save, scratch, timed
from perdure.access.fence import make_nonce
from perdure.archive import injections, memory_events
from perdure.home import Home
from perdure.index.projection import project_run
from perdure.index.write import write_run
from perdure.memories.store import MemoryDraft
from perdure.report.own_report import make_report

_BATCH = 2_000  # chunks of one transaction
_CUES = 6


def fill(home: Home, n_chunks: int) -> None:
    """Write made runs into the index."""
    index = home.index(create=True)
    source = corpus.runs(corpus.make(), n_chunks, 300, owners=(("ada", 1.0),), n_conversations=0)
    n_done = 0
    while n_done < n_chunks:
        with index.begin_write():
            n_end = n_done + _BATCH
            for run, parsed in source:
                n_done += write_run(index, run, parsed, project_run(run, parsed))
                if n_done >= n_end:
                    break
            else:
                return


def list_messages(home: Home, n: int) -> Iterator[tuple[str, str, str, datetime]]:
    """Yield (turn, runtime, session, time) of the last messages of people."""
    query = """SELECT turn_id, runtime.value, run.session, stated_ms FROM turn JOIN run ON run.id = turn.run
      JOIN name AS runtime ON runtime.id = run.runtime WHERE role = 'user' ORDER BY stated_ms DESC LIMIT ?"""
    for turn_id, runtime, session, stated_ms in reversed(home.index().select(query, n)):
        yield turn_id, runtime, session, datetime.fromtimestamp(stated_ms / 1000, UTC)


def recall(home: Home, n_recalls: int) -> tuple[datetime, datetime]:
    """Put texts beside the last messages; return the time of the first and the last."""
    messages = list(list_messages(home, n_recalls))
    journal = home.journal()
    for n, (_, runtime, session, at) in enumerate(messages):
        who = {"runtime": runtime, "session": session, "agent": ""}
        cues = [messages[(n * 7 + k * 13) % len(messages)][0] for k in range(_CUES)]
        nonce = make_nonce()
        numbers = [{"turn": cue, "score": 1, "legs": {}, "n_tokens": 50} for cue in dict.fromkeys(cues)]
        data = {
            **who,
            "nonce": nonce,
            "digest": "",
            "turns": list(dict.fromkeys(cues)),
            "cues": numbers,
            "n_tokens": 300,
        }
        journal.append(injections.EVENT_TYPE, data, now=at)
        used = memory_events.build_used_data(nonce, cues[:1], used_at=at, **who)
        journal.append(memory_events.USED, used, now=at)
    return messages[0][3] - timedelta(seconds=1), messages[-1][3] + timedelta(seconds=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--recalls", type=int, default=1_000)
    parser.add_argument("--memories", type=int, default=5_000)
    options = parser.parse_args()
    result: dict[str, Any] = {"machine": machine(), **vars(options)}
    with scratch() as place, perdure.open(place / "home", user="ada") as home:
        fill(home, options.chunks)
        since_at, until_at = recall(home, options.recalls)
        drafts = [
            MemoryDraft(f"Service {n} listens on port {n + 1000}.", path=f"s{n}/port") for n in range(options.memories)
        ]
        home.memories.keep_all(drafts, by="owner")
        home.memories.uses()  # the index reads the journal
        for name in ("first", "second"):
            with timed() as clock:
                report = make_report(home, now=until_at, since_at=since_at)
            result[name] = {"wall_s": round(clock.wall_s, 2), "cpu_s": round(clock.cpu_s, 2)}
        result["texts"] = report.counts
    print(json.dumps(result, indent=1))
    save("report", result)


if __name__ == "__main__":
    main()
