"""What a test waits for, and ports for its servers."""

from __future__ import annotations

import contextlib
import random
import socket
import time
from collections.abc import Callable
from typing import Any


def wait_for(condition: Callable[[], Any], what: str = "", *, limit_s: float = 60.0) -> Any:
    """Wait until something is true, and return it."""
    ends_s = time.monotonic() + limit_s
    while not (value := condition()):
        assert time.monotonic() < ends_s, f"it never was: {what}"
        time.sleep(0.02)
    return value


def find_free_ports(n: int) -> list[int]:
    """Ports that nobody uses now, nor the port 10,000 above each; below those that the system gives away."""
    ports: list[int] = []
    while len(ports) < n:
        port = random.randrange(12_000, 22_000)
        with socket.socket() as candidate, socket.socket() as second, contextlib.suppress(OSError):
            candidate.bind(("127.0.0.1", port))
            second.bind(("127.0.0.1", port + 10_000))
            ports.append(port)
    return ports
