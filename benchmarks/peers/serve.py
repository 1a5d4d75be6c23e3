"""The other side of a system that is compared: JSON lines in, JSON lines out.

The standard library alone: it runs in the system's own Python.

{"take": group, "texts": [{"id", "text", "project", "session", "role", "at"}, …]}
    ->  {"took_s": seconds, "cpu_s": processor seconds, "hosts": […],
         "tokens_written": what a model read and wrote meanwhile, or null}
{"ask": text, "group": group, "k": 20, "project": name}
    ->  {"told": [id, …] or [{"text": own words, "id": of the text that they quote, if any}, …],
         "took_ms": milliseconds, "cpu_ms": processor milliseconds, "hosts": […]}

Texts come oldest first; a question with a project is about the texts of that project alone, "" means all of them.
Processor time is that of the process and of those that it started and that ended, and what `saved` adds. `hosts` are
the other machines that Python code tried to reach so far. What a system prints of itself goes to stderr, so that it
cannot get between the lines.
"""

import json
import os
import resource
import sys
import time

saved = {"cpu_s": 0.0}  # of what another run had worked out already, and this one would have had to
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


def read_cpu_s():
    """Return the processor seconds of this process, of those that it started and that ended, and what was saved."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used) + saved["cpu_s"]


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
        started, cpu_started = time.perf_counter(), read_cpu_s()
        if "take" in asked:
            answer, scale, unit = {"tokens_written": take(asked["take"], asked["texts"])}, 1, "s"
        else:
            told = ask(asked["group"], asked["ask"], asked["k"], asked.get("project", ""))
            answer, scale, unit = {"told": told}, 1000, "ms"
        answer[f"took_{unit}"] = (time.perf_counter() - started) * scale
        answer[f"cpu_{unit}"] = (read_cpu_s() - cpu_started) * scale
        lines.write(json.dumps({**answer, "hosts": hosts}) + "\n")
        lines.flush()
