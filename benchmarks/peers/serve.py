"""The other side of a peer: JSON lines in, JSON lines out.

The standard library alone: it runs in the peers' own Pythons.

{"take": group, "docs": [[id, text, project], …]}        ->  {"took_s": seconds}
{"ask": text, "group": group, "k": 20, "project": name}  ->  {"ranked": [id, …], "took_ms": milliseconds}

A question with a project ranks the texts of that project alone; "" means all of them.

What a peer prints of itself goes to stderr, so that it cannot get between the lines.
"""

import json
import os
import sys
import time


def serve(take, ask):
    """Answer until the input ends.

    take(group, ids, texts, projects) keeps documents; ask(group, text, k, project) ranks ids.
    """
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        asked = json.loads(line)
        started = time.perf_counter()
        if "take" in asked:
            ids, texts, projects = zip(*asked["docs"], strict=True)
            take(asked["take"], list(ids), list(texts), list(projects))
            answer = {"took_s": time.perf_counter() - started}
        else:
            ranked = ask(asked["group"], asked["ask"], asked["k"], asked.get("project", ""))
            answer = {"ranked": ranked, "took_ms": (time.perf_counter() - started) * 1000}
        lines.write(json.dumps(answer) + "\n")
        lines.flush()
