"""The proxy beside a direct connection, in the same rounds: milliseconds added, memory at many streams, kept prefixes.

python -m benchmarks.proxy                 # a minute and a half
python -m benchmarks.proxy --rounds 30 --streams 20

A scripted provider runs in a process of its own, `perdure proxy` with its home in another. A request is as long as one
of Claude Code's. "without recall" is a tool's result, "with recall" a new message of a person. Differences of the same
round are what counts: the machine may be busy.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import perdure
from benchmarks import common, corpus
from perdure import log
from perdure.config import Config, ProxyConfig
from perdure.surfaces.proxy.edits import RequestEditor
from perdure.surfaces.proxy.server import ProxyServer
from perdure.surfaces.proxy.store import BlockStore

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from rig import model_server
from rig.clients import blocks
from rig.resident import ScriptedResident
from rig.tap import remove_added
from rig.upstream import Reply, Sent, Upstream

SYSTEM_CHARS = 60_000  # of a request's system prompt and tools, as Claude Code sends them
N_TURNS = 20
STREAM_S = 6.0  # how long each of the many streams lasts
N_EVENTS = 60
N_CALLS = 5  # of tools in each turn, with a request each
RECORDINGS = Path(__file__).parents[1] / "tests" / "data" / "proxy"
API_PATHS = {"messages": "/v1/messages", "chat": "/v1/chat/completions", "responses": "/v1/responses"}
BLOCK_CHARS = 1_200  # of a block, in the count of kept prefixes


def reply(sent: Sent) -> Reply:
    body = json.loads(sent.body or b"{}")
    answer = model_server.Answer("It is 9090, as it was decided. " * 8)
    events = model_server.messages(body, answer)[1]
    if body.get("slow"):
        ping = b'event: ping\ndata: {"type":"ping","at":"%s"}\n\n' % (b"x" * 80)
        return Reply([*events[:-1], *([ping] * N_EVENTS), events[-1]], headers=SSE, pause_s=STREAM_S / N_EVENTS)
    return Reply(events, headers=SSE)


SSE = {"Content-Type": "text/event-stream"}


def serve_upstream() -> None:
    """Be the provider until standard input ends."""
    with Upstream(reply) as upstream:
        print(upstream.url, flush=True)
        sys.stdin.read()


def fill(home: Path, n_messages: int) -> list[str]:
    """A home with so many captured messages; returns questions about them."""
    made = corpus.make()
    said = corpus.queries(made, "question", n_messages, seed=5)
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text('user = "bench"\n')
    with perdure.open(home) as opened:
        for low in range(0, n_messages, 20):
            rows = [
                {"role": ("user", "assistant")[n % 2], "content": text, "timestamp": "2026-01-15T09:00:00+00:00"}
                for n, text in enumerate(said[low : low + 20])
            ]
            opened.capture_messages(rows, session=f"session-{low}")
        opened.upkeep.embed()
    return said


class Caller:
    """A kept connection to one address."""

    def __init__(self, base: str) -> None:
        parts = urlsplit(base)
        self.path = f"{parts.path}/v1/messages"
        self.connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)

    def ask(self, body: bytes) -> tuple[float, float]:
        """Milliseconds until the first byte, and until the last."""
        began_s = time.perf_counter()
        self.connection.request("POST", self.path, body, {"Content-Type": "application/json", "X-Api-Key": "none"})
        answer = self.connection.getresponse()
        answer.read(1)
        first_ms = (time.perf_counter() - began_s) * 1000
        answer.read()
        return first_ms, (time.perf_counter() - began_s) * 1000


def build(*messages: dict[str, Any], **more: Any) -> bytes:
    system = [{"type": "text", "text": "You are an agent. " * (SYSTEM_CHARS // 18)}]
    return json.dumps({"model": "m", "stream": True, "system": system, "messages": list(messages), **more}).encode()


def measure_latency(direct_url: str, proxy_url: str, asked: list[str], rounds: int) -> list[dict[str, Any]]:
    """One direct request and two through the proxy in each round."""
    direct, proxied = Caller(direct_url), Caller(proxy_url)
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "out"}]}
    values: dict[str, list[float]] = {name: [] for name in ("direct", "without recall", "with recall")}
    for n in range(rounds + 5):
        person = {"role": "user", "content": asked[n]}
        tool = build({"role": "user", "content": "begin"}, {"role": "assistant", "content": "yes"}, result)
        times = {
            "direct": direct.ask(build(person))[0],
            "without recall": proxied.ask(tool)[0],
            "with recall": proxied.ask(build(person))[0],
        }
        if n >= 5:
            for name, value in times.items():
                values[name].append(value)
    rows = [{"request": name, **common.spread(found)} for name, found in values.items()]
    for name in ("without recall", "with recall"):
        added = [after - before for before, after in zip(values["direct"], values[name], strict=True)]
        rows.append({"request": f"added {name}", **common.spread(added)})
    return rows


def read_rss_mb(pid: int) -> float:
    n_pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return round(n_pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)


def measure_streams(proxy_url: str, pid: int, n_streams: int) -> dict[str, Any]:
    """Memory of the proxy's process before, during and after so many streams at once, and how many came whole."""
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "out"}]}
    said = ({"role": "user", "content": "begin"}, {"role": "assistant", "content": "yes"})
    body = build(*said, result, slow=True)
    whole: list[bool] = []

    def run() -> None:
        caller = Caller(proxy_url)
        caller.connection.request("POST", caller.path, body, {"Content-Type": "application/json"})
        raw = caller.connection.getresponse().read()
        whole.append(raw.count(b"event: ping") == N_EVENTS and raw.rstrip().endswith(b'{"type": "message_stop"}'))
        caller.connection.close()

    before_mb = read_rss_mb(pid)
    threads = [threading.Thread(target=run) for _ in range(n_streams)]
    began_s, peak_mb = time.perf_counter(), 0.0
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        peak_mb = max(peak_mb, read_rss_mb(pid))
        time.sleep(0.2)
    took_s = time.perf_counter() - began_s
    return {
        "streams": n_streams, "whole": sum(whole), "before MB": before_mb, "peak MB": peak_mb,
        "after MB": read_rss_mb(pid), "s": round(took_s, 1), "s alone": STREAM_S,
    }  # fmt: skip


def measure_prefix(home: Path) -> list[dict[str, Any]]:
    """Characters of one conversation's requests that a provider's cache holds already, in three ways."""
    with_blocks, plain, newest_only = [], [], []
    store = BlockStore(home)
    block = "[perdure-recall 0123456789abcdef begins]\n" + "x" * BLOCK_CHARS
    editor = RequestEditor(home, store, limit_ms=10_000, ask_resident=lambda *_, **__: {"text": block})
    history: list[dict[str, Any]] = []
    for n in range(N_TURNS):
        history.append({"role": "user", "content": f"Question {n}: " + "what was decided about it? " * 8})
        for call in range(N_CALLS + 1):
            raw = json.dumps({"model": "m", "system": "s" * SYSTEM_CHARS, "messages": history}).encode()
            plain.append(json.loads(raw))
            with_blocks.append(json.loads(editor.edit("messages", raw, {}).raw))
            newest = len(history) - 1 - 2 * call
            messages = list(plain[-1]["messages"])
            messages[newest] = with_blocks[-1]["messages"][newest]
            newest_only.append({**plain[-1], "messages": messages})
            if call < N_CALLS:
                use = {"type": "tool_use", "id": f"{n}-{call}", "name": "Read", "input": {}}
                result = {"type": "tool_result", "tool_use_id": f"{n}-{call}", "content": "a line of a file\n" * 120}
                history += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
        history.append({"role": "assistant", "content": f"Answer {n}: " + "it was decided to keep it. " * 40})
    store.close()
    rows = []
    for name, bodies in (
        ("no memory", plain),
        ("the same blocks again", with_blocks),
        ("newest block alone", newest_only),
    ):
        total = cached = 0
        before: list[tuple[str, str]] = []
        for body in bodies:
            pieces = list(blocks(body))
            n_kept = next((i for i, pair in enumerate(zip(before, pieces, strict=False)) if pair[0] != pair[1]),
                          min(len(before), len(pieces)))  # fmt: skip
            cached += sum(len(text) for _, text in pieces[:n_kept])
            total += sum(len(text) for _, text in pieces)
            before = pieces
        rows.append({"conversation": name, "characters sent": total, "in the cache": cached,
                     "to read anew": total - cached, "share cached": round(cached / total, 4)})  # fmt: skip
    return rows


def measure_bytes(home: Path) -> list[dict[str, Any]]:
    """Requests of real clients, recorded: the bytes that each sent and those that the provider got."""
    block = "[perdure-recall 0123456789abcdef begins]\n" + "x" * BLOCK_CHARS
    config = Config(user="bench", proxy=ProxyConfig(limit_ms=5_000))
    rows = []
    with Upstream(reply) as upstream, ScriptedResident(home, block):
        table = {"anthropic": upstream.url, "openai": upstream.url}
        running = ProxyServer(home, config._replace(proxy=config.proxy._replace(upstreams=table)), listen="127.0.0.1:0")
        base = urlsplit(running.start().base_url)
        connection = http.client.HTTPConnection(base.hostname or "", base.port, timeout=60)
        for path in sorted(RECORDINGS.glob("*.jsonl")):
            row = {"client": path.stem, "requests": 0, "sent": 0, "received": 0, "with a block": 0, "the same": 0}
            for line in path.read_text().splitlines():
                request = json.loads(line)
                raw = json.dumps(request["body"], ensure_ascii=False, separators=(",", ":")).encode()
                connection.request("POST", base.path + API_PATHS[request["api"]], raw, request["headers"])
                connection.getresponse().read()
                received = upstream.sent[-1].body
                row["requests"] += 1
                row["sent"] += len(raw)
                row["received"] += len(received)
                row["with a block"] += received != raw
                row["the same"] += remove_added(received, raw) == raw
            rows.append(row)
        connection.close()
        running.stop()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--messages", type=int, default=2000, help="captured in the home before")
    parser.add_argument("--upstream", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.upstream:
        serve_upstream()
        return
    with common.scratch() as place:
        home = place / "home"
        asked = fill(home, options.messages)
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        provider = subprocess.Popen([sys.executable, "-m", "benchmarks.proxy", "--upstream"], **pipes)
        assert provider.stdout and provider.stdin
        url = provider.stdout.readline().strip()
        with (home / "config.toml").open("a") as file:
            file.write(f'[proxy]\nlisten = "127.0.0.1:0"\n[proxy.upstreams]\nanthropic = "{url}"\n')
        env = {**os.environ, "PERDURE_HOME": str(home), "HOME": str(place)}
        running = subprocess.Popen([sys.executable, "-m", "perdure.surfaces.cli", "proxy"], env=env, **pipes)
        try:
            assert running.stdout
            base = running.stdout.readline().strip().partition("=")[2]
            time.sleep(8)  # the model is loaded meanwhile
            latency = measure_latency(url, base, asked, options.rounds)
            answered = list(log.read_entries(home, entry_type="answered"))[-options.rounds :]
            took = [float(row["took_ms"]) for row in answered]
            latency.append({"request": "recall's own", **common.spread(took)})
            outcomes = {row["outcome"] for row in answered}
            common.table(f"milliseconds to the first byte, {options.rounds} rounds", latency)
            print(f"outcomes of recall: { {o: sum(r['outcome'] == o for r in answered) for o in sorted(outcomes)} }")
            streams = measure_streams(base, running.pid, options.streams)
            streams["s direct"] = measure_streams(url, running.pid, options.streams)["s"]
            common.table("many streams at once", [streams])
        finally:
            running.terminate()
            running.wait(30)
            provider.stdin.close()
            provider.wait(10)
        compared = measure_bytes(home)
        common.table("bytes of recorded requests; 'the same' without the blocks", compared)
        prefix = measure_prefix(home)
        common.table(f"{N_TURNS * (N_CALLS + 1)} requests of one conversation, {N_TURNS} turns", prefix)
    common.save("proxy", {"latency_ms": latency, "streams": streams, "bytes": compared, "prefix": prefix})


if __name__ == "__main__":
    main()
