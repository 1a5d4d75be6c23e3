"""Connect to an MCP server by the official package. The server gets nothing: no sampling, no questions, no folders.

The package is asynchronous. This module and `mcp_tools.py` are the only ones below the surfaces that touch it.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.types import Implementation

from perdure.environ import read_variable
from perdure.errors import ConfigFault, VariableMissing
from perdure.text import one_line, printable

LOG_CHARS = 200  # of what a server that failed wrote last
LOG_BYTES = 4096  # the end of what it wrote, which is kept
_LOG_WAIT_S = 0.2  # for what a server wrote just before it failed
FAULTS = (MCPError, OSError, TimeoutError, ValueError, anyio.BrokenResourceError, anyio.ClosedResourceError)
for _name in ("mcp", "client"):  # of the package; what a server does wrong is told in words, once
    logging.getLogger(_name).addHandler(logging.NullHandler())


@dataclass(frozen=True)
class McpAddress:
    """Where a server is: a command to start, or a URL to reach."""

    key: str  # of its settings, for messages
    command: tuple[str, ...]
    variables: Mapping[str, str]  # for the command, besides PATH, HOME and the like
    url: str
    key_env: str  # the variable with the bearer token for the URL
    timeout_s: float  # of each request
    cwd: Path | None = None  # where the command runs


class StderrTail:
    """The end of what a server writes on its standard error. A thread reads all of it: a full pipe would hold the
    server up, and a file would grow without end.
    """

    def __init__(self) -> None:
        reading, writing = os.pipe()
        self.file = os.fdopen(writing, "w")  # for the process
        self._tail = b""
        self._thread = threading.Thread(target=self._read, args=(reading,), name="mcp-log", daemon=True)
        self._thread.start()

    def _read(self, descriptor: int) -> None:
        with os.fdopen(descriptor, "rb", buffering=0) as pipe:
            while data := pipe.read(65_536):
                self._tail = (self._tail + data)[-LOG_BYTES:]

    def close(self) -> None:
        """Take no more from this process; the thread ends with the last process that can write."""
        self.file.close()

    def describe(self) -> str:
        """Return the last line that the server wrote, for a person."""
        self._thread.join(_LOG_WAIT_S)
        lines = [line for line in self._tail.decode("utf-8", "replace").splitlines() if line.strip()]
        return f" (it wrote: {one_line(printable(lines[-1]), LOG_CHARS)})" if lines else ""


@asynccontextmanager
async def connect(address: McpAddress, log: StderrTail) -> AsyncIterator[Client]:
    """Start or reach a server; at the end its process is ended. log: gets what it writes on standard error."""
    options: dict[str, Any] = {
        "read_timeout_seconds": address.timeout_s, "client_info": Implementation(name="perdure", version="0.1"),
        "cache": None,
    }  # fmt: skip
    if address.command:
        parameters = StdioServerParameters(
            command=address.command[0], args=list(address.command[1:]), env=dict(address.variables), cwd=address.cwd,
            encoding_error_handler="replace",
        )  # fmt: skip
        async with Client(stdio_client(parameters, errlog=log.file), **options) as client:
            yield client
        return
    secret = read_variable(address.key_env) if address.key_env else None
    if address.key_env and not secret:
        raise VariableMissing(f"{address.key}.key_env: the environment has no {address.key_env}")
    headers = {"Authorization": f"Bearer {secret}"} if secret else None
    async with create_mcp_http_client(headers) as http_client:
        transport = streamable_http_client(address.url, http_client=http_client)
        async with Client(transport, **options) as client:
            yield client


def describe_fault(error: BaseException, address: McpAddress, *, limit_s: float) -> str:
    """Return why a server gave no answer. Raises the first error of a group that is none of a server's."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, ConfigFault):
        return error.detail
    if isinstance(error, TimeoutError):
        return f"no answer within {limit_s:g} s"
    if isinstance(error, FileNotFoundError):
        return f"there is no program {address.command[0]!r}" if address.command else str(error)
    if not isinstance(error, FAULTS) and not _is_of_http(error):
        raise error
    return one_line(printable(str(error) or type(error).__name__), LOG_CHARS)


def _is_of_http(error: Any) -> bool:
    return type(error).__module__.startswith(("httpx2", "httpcore"))
