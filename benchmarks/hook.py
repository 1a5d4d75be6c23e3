"""The hook as a whole process, beside a bare interpreter in the same run: what a message waits for, and a turn's end.

"prompt" asks a resident home that answers at once, so this is the price of the process and the socket; "turn end" posts
a delta of about 4 kB. "alone" is the whole hook in its own process, as where the resident home declines the event.
Taken in turns, so that a busy moment hits all alike. Cold: the pages of the interpreter's own library and of Perdure's
modules are dropped before each start, where the system can be asked for that.

    python -m benchmarks.hook
    python -m benchmarks.hook --runs 400
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import perdure
from benchmarks.common import describe_run, drop_from_cache, keep_result, save, scratch, spread, table
from rig.resident import ScriptedResident

PACKAGE = Path(perdure.__file__).parent
HOOK = PACKAGE / "capture" / "__main__.py"
ANSWER = "[perdure-recall 0000000000000000 begins]\n" + "x" * 4000 + "\n[perdure-recall 0000000000000000 ends]"
TURN = json.dumps({"type": "assistant", "message": {"role": "assistant", "content": "y" * 4000}}).encode() + b"\n"


Cost = tuple[float, float]  # (wall, processor) milliseconds


def cost_of(line: list[str], said: bytes, **variables: str) -> Cost:
    """The price of one process; its own processor time, which a busy machine changes little."""
    with tempfile.TemporaryFile() as file:
        file.write(said)
        file.seek(0)
        began_s = time.perf_counter()
        child = subprocess.Popen(
            line, stdin=file, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **variables}
        )
        _, err = child.stdout.read(), child.stderr.read()
        _, status, used = os.wait4(child.pid, 0)
        wall_s = time.perf_counter() - began_s
        child.returncode = os.waitstatus_to_exitcode(status)
    child.stdout.close()
    child.stderr.close()
    assert not child.returncode and not err, err
    return wall_s * 1000, (used.ru_utime + used.ru_stime) * 1000


def cases(home: Path, transcript: Path) -> dict[str, Callable[[], Cost]]:
    hook = [sys.executable, "-IS", str(HOOK), "claude-code", "--home", str(home)]
    head = {"session_id": "s", "transcript_path": str(transcript), "cwd": str(home)}
    prompt = json.dumps({**head, "hook_event_name": "UserPromptSubmit", "prompt": "What was the port?"}).encode()
    ended = json.dumps({**head, "hook_event_name": "Stop"}).encode()

    def turn_end(**variables: str) -> Cost:
        with transcript.open("ab") as file:
            file.write(TURN)
        return cost_of(hook, ended, **variables)

    alone = {"HOME": "/"}  # the resident home has another: it declines
    return {
        "bare interpreter": lambda: cost_of([sys.executable, "-c", "pass"], b""),
        "bare, -IS": lambda: cost_of([sys.executable, "-IS", "-c", "pass"], b""),
        "hook, prompt": lambda: cost_of(hook, prompt),
        "hook, prompt, alone": lambda: cost_of(hook, prompt, **alone),
        "hook, turn end": turn_end,
        "hook, turn end, alone": lambda: turn_end(**alone),
    }


def measure(n_runs: int, *, cold: bool) -> list[dict[str, Any]]:
    with scratch() as place:
        with perdure.open(place / "home") as home:
            path = home.path
        with ScriptedResident(path, ANSWER) as resident:
            todo = cases(path, place / "t.jsonl")
            for run in todo.values():
                run()
            found: dict[str, list[Cost]] = {name: [] for name in todo}
            dropped = True
            for _ in range(n_runs):
                for name, run in todo.items():
                    dropped = forget() and dropped if cold else dropped
                    found[name].append(run())
            assert len(resident.asked) == 2 * (n_runs + 1)
        assert len(list((path / "outbox").glob("*.delta"))) == 2 * (n_runs + 1)
    state = "warm" if not cold else "cold" if dropped else "warm (cannot be dropped here)"
    summaries = {name: summarise(costs, found) for name, costs in found.items()}
    return [{"cache": state, "what": name, "runs": n_runs, **cost} for name, cost in summaries.items()]


def summarise(costs: list[Cost], all_costs: dict[str, list[Cost]]) -> dict[str, Any]:
    """Wall and processor milliseconds, and the latter as a multiple of a bare interpreter's in the same round."""
    bare = all_costs["bare interpreter"]
    times = [cost[1] / other[1] for cost, other in zip(costs, bare, strict=True)]
    cpu = spread([cost[1] for cost in costs])
    return {
        **spread([cost[0] for cost in costs]), "cpu p50": cpu["p50"], "cpu p95": cpu["p95"],
        "x bare": round(statistics.median(times), 2),
    }  # fmt: skip


def forget() -> bool:
    """Drop the pages of everything that such a process reads."""
    library = Path(sysconfig.get_path("stdlib"))
    files = [*library.glob("*.py"), *library.glob("__pycache__/*"), *library.glob("*/__pycache__/*.pyc"),
             *library.glob("lib-dynload/*"), *PACKAGE.glob("__pycache__/*"), *PACKAGE.glob("capture/**/*.py*"),
             Path(sys.executable).resolve()]  # fmt: skip
    return sum(not drop_from_cache(path) for path in files if path.is_file()) == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--keep", action="store_true", help="keep the result in benchmarks/results")
    options = parser.parse_args()
    rows = measure(options.runs, cold=False) + measure(max(10, options.runs // 10), cold=True)
    table("one process from start to end, ms (target: p95 of a prompt 60 warm, and 2 x bare)", rows)
    save("hook", {"rows": rows})
    if options.keep:
        by_name = {f"{row['cache']}: {row['what']}": row for row in rows}
        keep_result("hook", {**describe_run(), "rows": by_name})


if __name__ == "__main__":
    main()
