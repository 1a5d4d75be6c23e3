"""A conversation of 10 MB: opened, read from its beginning to its end, and entered at its end."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import perdure

LONG_BYTES = 10_000_000
WITHIN_S = 240.0
MOST_NODES = 400_000  # of a page that shows all of it
MOST_NODES_AT_ONCE = 12_000  # of a page that was opened
STARTED = datetime(2026, 11, 1, tzinfo=UTC)
WORDS = "harbour cable parser ledger lantern ember copper meadow signal tunnel orchard pocket rocket tide".split()
FRAMES = """() => {
  window.frames_ms = []; window.long_ms = [];
  new PerformanceObserver(list => list.getEntries().forEach(one => long_ms.push(one.duration)))
    .observe({ type: "longtask" });
  let last = performance.now();
  const tick = now => { frames_ms.push(now - last); last = now; requestAnimationFrame(tick); };
  requestAnimationFrame(tick);
}"""
STATE = """() => ({
  turns: document.querySelectorAll(".turns li[id]").length, nodes: document.querySelectorAll("*").length,
  is_over: !document.querySelector(".turns > .later"), height: document.documentElement.scrollHeight })"""


def lines(n_bytes: int) -> Iterator[bytes]:
    """A session of Claude Code of so many bytes, in which every fourth turn is the result of a call."""
    rng, parent, written, n = random.Random(5), None, 0, 0
    while written < n_bytes:
        kind = "user" if n % 4 in (0, 3) else "assistant"
        line = json.dumps({
            "parentUuid": parent, "isSidechain": False, "cwd": "/w", "sessionId": "long", "type": kind, "uuid": f"u{n}",
            "timestamp": (STARTED + timedelta(seconds=20 * n)).strftime("%Y-%m-%dT%H:%M:%S.000Z"),
            "message": message(rng, n),
        }).encode() + b"\n"  # fmt: skip
        yield line
        parent, written, n = f"u{n}", written + len(line), n + 1


def message(rng: random.Random, n: int) -> dict[str, Any]:
    """What is said in a turn: a prompt, an answer, a call with words before it, its result."""
    prose = f"Turn {n:05}. " + " ".join(rng.choices(WORDS, k=(60, 140, 100, 700)[n % 4])) + "."
    if n % 4 == 0:
        return {"role": "user", "content": prose}
    if n % 4 == 3:
        return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"t{n - 1}", "content": prose}]}
    blocks: list[dict[str, Any]] = [{"type": "text", "text": prose + "\n\n```python\nport = 8642\n```\n"}]
    if n % 4 == 2:
        blocks.append(
            {"type": "tool_use", "id": f"t{n}", "name": "Bash", "input": {"command": f"make {WORDS[n % len(WORDS)]}"}}
        )
    return {"role": "assistant", "id": f"m{n}", "model": "scripted-1", "content": blocks}


@pytest.fixture(scope="module")
def site(serve: Callable[[Path], Any], tmp_path_factory: pytest.TempPathFactory, settings: str) -> Any:
    """A served home that holds the conversation."""
    place = tmp_path_factory.mktemp("long")
    (place / "long.jsonl").write_bytes(b"".join(lines(LONG_BYTES)))
    home = place / "home"
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(settings + "[memories]\nstated = false\n")
    with perdure.open(home, user="mira") as opened:
        opened.import_files([place / "long.jsonl"])
    return serve(home)


@pytest.fixture(scope="module")
def run(site: Any) -> Any:
    with site.open() as home:
        (found,) = home.runs.conversation("long")
        return found


def test_long_session_opens_with_a_bounded_number_of_nodes(visit: Any, run: Any) -> None:
    page = visit(f"/runs/{run.run_id}")
    assert "Turn 00000." in page.locator("main").inner_text()
    assert page.evaluate(STATE)["nodes"] < MOST_NODES_AT_ONCE


def test_link_opens_the_end_of_a_long_session_at_once(visit: Any, run: Any, site: Any) -> None:
    with site.open() as home:
        hit = home.search(f'"Turn {run.n_turns - 1:05}"').hits[0]
    page = visit(f"/turns/{hit.turn_id}")
    assert page.locator(f"#{hit.turn_id}").count() == 1
    assert page.evaluate(STATE)["nodes"] < MOST_NODES_AT_ONCE


@pytest.mark.slow
def test_long_session_scrolls_to_its_end_in_order(visit: Any, run: Any) -> None:
    page = visit(f"/runs/{run.run_id}")
    page.evaluate(FRAMES)
    began_s, state = time.monotonic(), page.evaluate(STATE)
    while not state["is_over"] and time.monotonic() - began_s < WITHIN_S:
        page.mouse.wheel(0, 4000)
        page.wait_for_timeout(30)
        state = page.evaluate(STATE)
    took_s = time.monotonic() - began_s
    assert state["is_over"], state
    said = page.evaluate("() => document.querySelector('main').textContent.match(/Turn [0-9]{5}[.]/g)")
    numbers = [int(one[5:10]) for one in said]
    assert list(dict.fromkeys(numbers)) == list(range(run.n_turns))
    assert state["nodes"] < MOST_NODES
    frames = sorted(page.evaluate("frames_ms"))
    long = sorted(page.evaluate("long_ms"))
    sys.stdout.write(json.dumps({
        "turns": run.n_turns, "s": round(took_s, 1), "nodes": state["nodes"], "frames": len(frames),
        "frame ms p50": round(frames[len(frames) // 2], 1), "p95": round(frames[len(frames) * 95 // 100], 1),
        "max": round(frames[-1], 1), "long tasks": len(long), "longest ms": round(long[-1], 1) if long else 0,
    }) + "\n")  # fmt: skip
