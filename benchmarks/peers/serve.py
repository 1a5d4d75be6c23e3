"""The other side of a system that is compared: JSON lines in, JSON lines out.

The standard library alone: it runs in the system's own Python.

{"take": group, "texts": [{"id", "text", "project", "session", "role", "at"}, …]}
    ->  {"took_s": seconds, "tokens_written": what a model read and wrote meanwhile, or null, "hosts": […]}
{"ask": text, "group": group, "k": 20, "project": name}
    ->  {"told": [id, …] or [{"text": own words, "id": of the text that they quote, if any}, …],
         "took_ms": milliseconds, "hosts": […]}

Texts come oldest first; a question with a project is about the texts of that project alone, "" means all of them.
`hosts` are the other machines that Python code tried to reach so far. What a system prints of itself goes to stderr, so
that it cannot get between the lines.
"""

import json
import os
import sys
import time

_LOCAL = ("localhost", "127.0.0.1", "::1", "", None)


def watch_network():
    """Return a list to which every other machine is added that this process tries to reach from Python."""
    hosts = []

    def note(event, arguments):
        if event == "socket.getaddrinfo":
            host = arguments[0]
        elif event == "socket.connect":
            host = arguments[1][0] if isinstance(arguments[1], tuple) else None  # a path: a socket of this machine
        else:
            return
        host = host.decode() if isinstance(host, bytes) else host
        if host not in _LOCAL and host not in hosts:
            hosts.append(host)

    sys.addaudithook(note)
    return hosts


def serve(take, ask):
    """Answer until the input ends.

    take(group, texts) keeps texts, dictionaries as above, and returns the tokens that a model took for it, or None;
    ask(group, text, k, project) returns what it would tell, best first: ids of texts, or {"text": its own words} and,
    where it quotes a text, its "id".
    """
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    hosts = watch_network()
    for line in sys.stdin:
        asked = json.loads(line)
        started = time.perf_counter()
        if "take" in asked:
            answer = {"tokens_written": take(asked["take"], asked["texts"]), "took_s": time.perf_counter() - started}
        else:
            told = ask(asked["group"], asked["ask"], asked["k"], asked.get("project", ""))
            answer = {"told": told, "took_ms": (time.perf_counter() - started) * 1000}
        lines.write(json.dumps({**answer, "hosts": hosts}) + "\n")
        lines.flush()
