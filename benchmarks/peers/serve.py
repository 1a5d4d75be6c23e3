"""The other side of a peer: JSON lines in, JSON lines out.

The standard library alone: it runs in the peers' own Pythons.

{"take": group, "docs": [[id, text], …]}  ->  {"took_s": seconds}
{"ask": text, "group": group, "k": 20}    ->  {"ranked": [id, …], "took_ms": milliseconds}

What a peer prints of itself goes to stderr, so that it cannot get between the lines.
"""

import json
import os
import sys
import time


def serve(take, ask):
    """Answer until the input ends. take(group, ids, texts) keeps documents; ask(group, text, k) ranks ids."""
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        asked = json.loads(line)
        started = time.perf_counter()
        if "take" in asked:
            ids, texts = zip(*asked["docs"], strict=True)
            take(asked["take"], list(ids), list(texts))
            answer = {"took_s": time.perf_counter() - started}
        else:
            ranked = ask(asked["group"], asked["ask"], asked["k"])
            answer = {"ranked": ranked, "took_ms": (time.perf_counter() - started) * 1000}
        lines.write(json.dumps(answer) + "\n")
        lines.flush()
