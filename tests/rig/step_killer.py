"""Kill a process before each of its steps, message after message, in one home."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

_LOOP = """
number = 0
while True:
    print(number, flush=True)
    sys.stdin.readline()
    ended = []
    for max_steps in (number, 1 << 30):
        child = os.fork()
        if child == 0:
            work(number, max_steps)
        ended.append(os.waitpid(child, 0)[1])
    assert ended[1] == 0, ended
    if ended[0] == 0:
        break
    number += 1
print("end", flush=True)
"""


def kill_at_every_step(work: str, home: Path, put: Callable[[int], None]) -> int:
    """Kill before the first step of message 0, the second of message 1, and so on; return the number of steps.

    work: a program that imports os and sys and defines `work(number, max_steps)`, which deals with message `number` and
    ends its process, by SIGKILL before step `max_steps`. Each message gets a second process that is not killed.
    put: brings the message of a number.
    """
    words = [sys.executable, "-c", work + _LOOP, str(home)]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stdin and driver.stdout and driver.stderr
        n_kills = 0
        while (line := driver.stdout.readline().strip()).isdigit():
            n_kills = int(line)
            put(n_kills)
            driver.stdin.write("\n")
            driver.stdin.flush()
        driver.stdin.close()
        assert line == "end", driver.stderr.read()
    return n_kills
