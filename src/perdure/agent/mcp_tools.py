"""The tools of the MCP servers of one session: listed when it begins, called in it, and gone with it.

A server is a stranger. One that does not start, hangs, ends or lists nonsense costs its own tools and a notice, never
the session. The list of a server's tools stays as it was when it began: a provider's cache depends on it. What a server
says about itself (that a tool only reads) counts only if the owner of the agent says so.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import json
import math
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, InvalidStateError, wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import mcp.types as mcp_types
from anyio.from_thread import BlockingPortal
from jsonschema.exceptions import SchemaError
from jsonschema.validators import validator_for
from mcp import Client

from perdure.access.scan import Finding
from perdure.agent.image_size import IMAGE_TYPES, find_image_type
from perdure.agent.mcp_client import McpAddress, StderrTail, connect, describe_fault
from perdure.agent.mcp_settings import McpServer
from perdure.agent.permission import MCP_SEPARATOR
from perdure.agent.tools.files import MAX_IMAGE_BYTES
from perdure.agent.tools.output import KeptOutputs, take_first
from perdure.environ import read_variable
from perdure.formats.perdure import ImageEntry
from perdure.models.chat import ToolSpec
from perdure.session.calls import Tool, ToolOutput
from perdure.text import clip, one_line, printable

START_S = 30  # a server that has not listed its tools by then is left out
CLOSE_S = 10  # all servers together are given so long to end; the package ends their processes within six
MAX_TOOLS = 200  # of one server
MAX_NAME_CHARS = 64  # of `server__tool`: what providers take
MAX_DESCRIPTION_CHARS = 2_000
MAX_SCHEMA_CHARS = 20_000
MAX_IMAGES = 8  # of one answer
_MAX_PAGES = 20
_POLL_S = 0.05
_NOT_ALLOWED = re.compile(r"[^A-Za-z0-9_-]")
_UNUSABLE_KEYS = ("anyOf", "oneOf", "allOf", "not", "enum")  # providers refuse an input that begins with one of them
FindInjections = Callable[[str], Sequence[Finding]]


class _UnusableTool(ValueError):
    """A tool that is left out; the message is the reason."""


@dataclass
class _Connection:
    """One server, while it answers."""

    server: McpServer
    address: McpAddress
    log: StderrTail = field(default_factory=StderrTail)
    opened: Future[tuple[Client, list[mcp_types.Tool]]] = field(default_factory=Future)
    life: Future[None] | None = None  # of the connection, from its beginning to its end
    is_slow: bool = False  # a notice says that its tools come later

    async def hold(self) -> None:
        """Connect, list the tools, and stay until this is cancelled."""
        try:
            async with connect(self.address, self.log) as client:
                self.opened.set_result((client, await _list_tools(client)))
                await anyio.sleep_forever()
        except BaseException as error:  # cancelled or not, whoever waits for it must hear that it ended
            with suppress(InvalidStateError):  # it was told before
                self.opened.set_exception(error if isinstance(error, Exception) else CancelledError())
            if not isinstance(error, Exception):
                raise


async def _list_tools(client: Client) -> list[mcp_types.Tool]:
    tools: list[mcp_types.Tool] = []
    cursor = None
    for _ in range(_MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if cursor is None or len(tools) > MAX_TOOLS:
            break
    return tools


class McpConnections:
    """The servers of one session. Close it: that ends their processes."""

    def __init__(
        self, servers: Sequence[McpServer], *, cwd: Path, outputs: Path, find_injections: FindInjections
    ) -> None:
        """Start all servers side by side; `take_tools` takes what they list, and `notices` says what went wrong.

        cwd: where commands run. outputs: a folder for full answers.
        """
        self.tools: list[Tool] = []
        self.notices: list[str] = []
        self.readers: set[str] = set()  # the names of tools that the owner lets run as reading
        self._outputs, self._find_injections = outputs, find_injections
        self._numbers, self._kept = itertools.count(1), KeptOutputs()
        portal: Future[BlockingPortal] = Future()
        self._thread = threading.Thread(target=partial(anyio.run, _serve, portal), name="mcp", daemon=True)
        self._thread.start()
        self._portal = portal.result()
        self._begun_s = time.monotonic()
        self._connections = [self._begin(server, cwd) for server in servers]
        self._starting = list(self._connections)

    def _begin(self, server: McpServer, cwd: Path) -> _Connection:
        variables = {name: value for name in server.environment if (value := read_variable(name)) is not None}
        command = (server.command, *server.args) if server.command else ()
        key = f"mcp_servers.{server.name}"
        address = McpAddress(
            key, command, variables | dict(server.env), server.url, server.key_env, server.timeout_s, cwd
        )
        connection = _Connection(server, address)
        connection.life = self._portal.start_task_soon(connection.hold)
        return connection

    def take_tools(self, within_s: float = math.inf, cancel: threading.Event | None = None) -> None:
        """Wait for servers until so long after their start, and take the tools of those that answered.

        START_S after it the others are left out; before, a later call takes their tools. Cancelled, it does not wait.
        """
        answers = [connection.opened for connection in self._starting]
        deadline_s = self._begun_s + min(within_s, START_S)
        while wait(answers, _POLL_S).not_done and time.monotonic() < deadline_s and not (cancel and cancel.is_set()):
            pass
        can_come_later = time.monotonic() < self._begun_s + START_S
        starting, self._starting = self._starting, []
        for connection in starting:
            if can_come_later and not connection.opened.done():
                self._starting.append(connection)
                self._tell_slow(connection)
                continue
            try:
                client, tools = connection.opened.result(0)
            except Exception as error:  # noqa: BLE001 - whatever a server does, the session begins
                if connection.life is not None:
                    connection.life.cancel()
                why = _explain(error, connection.address, limit_s=START_S)
                self.notices.append(
                    f"The MCP server {connection.server.name} is left out: {why}{connection.log.describe()}."
                )
                continue
            self._add_tools(connection, client, tools)

    def _tell_slow(self, connection: _Connection) -> None:
        if not connection.is_slow:
            name = connection.server.name
            self.notices.append(f"The MCP server {name} has not answered yet: its tools come when it does.")
        connection.is_slow = True

    def _add_tools(self, connection: _Connection, client: Client, tools: Sequence[mcp_types.Tool]) -> None:
        """Add the tools of a server that make sense, in the order of their names."""
        server = connection.server
        listed = sorted(tools[:MAX_TOOLS], key=lambda tool: tool.name)
        if len(tools) > MAX_TOOLS:
            self.notices.append(f"The MCP server {server.name} has more than {MAX_TOOLS} tools: the rest is left out.")
        if missing := sorted(set(server.tools) - {tool.name for tool in listed}):
            self.notices.append(f"The MCP server {server.name} has no tool {', '.join(missing)}.")
        names = {tool.spec.name for tool in self.tools}
        for tool in listed:
            if server.tools and tool.name not in server.tools:
                continue
            try:
                spec = make_spec(server.name, tool, self._find_injections)
                if spec.name in names:
                    raise _UnusableTool("another one has this name")
            except _UnusableTool as error:
                name = one_line(printable(tool.name), MAX_NAME_CHARS)
                self.notices.append(f"The tool {name} of the MCP server {server.name} is left out: {error}.")
                continue
            names.add(spec.name)
            is_reading = server.trust_read_only and bool(tool.annotations and tool.annotations.read_only_hint)
            if is_reading:
                self.readers.add(spec.name)
            run = partial(self._call, connection, client, tool.name)
            self.tools.append(Tool(spec, run, is_alone=lambda _, alone=not is_reading: alone, is_checked=False))  # type: ignore[misc]

    def _call(
        self, connection: _Connection, client: Client, tool: str, given: Mapping[str, Any], cancel: threading.Event
    ) -> ToolOutput:
        """Call a tool, and wait for its answer, until its limit of time or until it is cancelled."""
        limit_s, name = connection.server.timeout_s, connection.server.name
        future = self._portal.start_task_soon(partial(client.call_tool, tool, dict(given), limit_s + CLOSE_S))
        deadline_s = time.monotonic() + limit_s
        while not future.done():
            wait([future], _POLL_S)
            if cancel.is_set() or time.monotonic() > deadline_s:
                future.cancel()
                why = "cancelled" if cancel.is_set() else f"no answer within {limit_s:g} s"
                return ToolOutput(
                    f"The MCP server {name}: {why}. Whether it did something is not known.", is_error=True
                )
        try:
            result = future.result()
        except Exception as error:  # noqa: BLE001 - the model reads what went wrong, and goes on
            why = _explain(error, connection.address, limit_s=limit_s)
            return ToolOutput(f"The MCP server {name} gave no answer: {why}{connection.log.describe()}.", is_error=True)
        return self._to_output(result)

    def _to_output(self, result: mcp_types.CallToolResult) -> ToolOutput:
        """Return an answer as the model reads it: its first lines, and its images; the whole text is in a file."""
        texts, images = read_content(result)
        text = "\n".join(texts)
        cut = take_first(text.split("\n"))
        lines = cut.lines
        if cut.is_cut:
            path = self._outputs / f"mcp-{next(self._numbers)}.txt"
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
                file.write(text)
            self._kept.add(path)
            n_lines = text.count("\n") + 1
            lines = [*lines, "", f"[The first {len(lines):,} of {n_lines:,} lines. read_file shows all: {path}]"]
        return ToolOutput("\n".join(lines) or "[no output]", is_error=bool(result.is_error), images=tuple(images))

    def close(self) -> None:
        """End the servers."""
        for connection in self._connections:
            if connection.life is not None:
                connection.life.cancel()
        with suppress(RuntimeError):  # it has ended by itself
            self._portal.start_task_soon(self._portal.stop, True)
        self._thread.join(CLOSE_S)
        for connection in self._connections:
            connection.log.close()


async def _serve(started: Future[BlockingPortal]) -> None:
    async with BlockingPortal() as portal:
        started.set_result(portal)
        await portal.sleep_until_stopped()


def _explain(error: BaseException, address: McpAddress, *, limit_s: float) -> str:
    try:
        return describe_fault(error, address, limit_s=limit_s)
    except BaseException as unknown:  # noqa: BLE001 - a server may break the package in any way
        return one_line(printable(f"{type(unknown).__name__}: {unknown}"), 200)


def _to_identifier(name: str) -> str:
    """Return a name of which a tool's name may be made; an editor calls its servers as it likes."""
    return _NOT_ALLOWED.sub("_", name)


def make_spec(server: str, tool: mcp_types.Tool, find_injections: FindInjections) -> ToolSpec:
    """Return a tool of a server as a model gets it. Raises _UnusableTool for one that would break or mislead it."""
    name = f"{_to_identifier(server)}{MCP_SEPARATOR}{_to_identifier(tool.name)}"
    if len(name) > MAX_NAME_CHARS:
        raise _UnusableTool(f"its name has more than {MAX_NAME_CHARS} characters")
    schema = {key: value for key, value in tool.input_schema.items() if key != "$schema"}
    if schema.get("type") != "object" or any(key in schema for key in _UNUSABLE_KEYS):
        raise _UnusableTool("its input is no plain object")
    raw = json.dumps(schema, ensure_ascii=False)
    if len(raw) > MAX_SCHEMA_CHARS:
        raise _UnusableTool(f"the schema of its input has more than {MAX_SCHEMA_CHARS:,} characters")
    try:
        validator_for(schema).check_schema(schema)
    except (SchemaError, RecursionError) as error:
        raise _UnusableTool(f"the schema of its input is not valid: {one_line(str(error), 100)}") from error
    description = clip(printable(tool.description or ""), MAX_DESCRIPTION_CHARS)
    for finding in find_injections(f"{description}\n{raw}"):
        raise _UnusableTool(f"its description reads like an attack on a model ({finding.rule}: {finding.excerpt!r})")
    return ToolSpec(name, description or f"{tool.name} of the MCP server {server}", schema)


def read_content(result: mcp_types.CallToolResult) -> tuple[list[str], list[ImageEntry]]:
    """Return the texts and images of an answer; what is neither is named."""
    texts: list[str] = []
    images: list[ImageEntry] = []
    for content in result.content:
        if isinstance(content, mcp_types.TextContent):
            texts.append(content.text)
        elif isinstance(content, mcp_types.ImageContent):
            image = _read_image(content) if len(images) < MAX_IMAGES else None
            images += [image] if image else []
            texts += [] if image else [f"[an image ({one_line(content.mime_type, 50)}) is left out]"]
        elif isinstance(content, mcp_types.EmbeddedResource) and isinstance(
            content.resource, mcp_types.TextResourceContents
        ):
            texts.append(content.resource.text)
        else:
            texts.append(f"[{content.type}: {one_line(str(getattr(content, 'uri', '')), 200)}]".replace(": ]", "]"))
    if not texts and not images and result.structured_content is not None:
        texts = json.dumps(result.structured_content, ensure_ascii=False, indent=1).split("\n")
    return texts, images


def _read_image(content: mcp_types.ImageContent) -> ImageEntry | None:
    """Return an image that models read; None for any other."""
    try:
        data = base64.b64decode(content.data, validate=True)
    except (binascii.Error, ValueError):
        return None
    kind = find_image_type(data)
    if kind not in IMAGE_TYPES or len(data) > MAX_IMAGE_BYTES:
        return None
    return ImageEntry(media_type=kind, data=content.data)
