"""Read the documents of an MCP server that is a source of this home, by the official package.

Only the command or address in the settings is used, only the tools listed there are called, and every answer has a
limit in time and size. The server gets nothing: no prompts, no sampling, no list of folders.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple

import anyio
from mcp import Client, MCPError
from mcp.types import CallToolResult, ReadResourceResult, Resource, TextContent, TextResourceContents

from perdure.agent.mcp_client import FAULTS, LOG_CHARS, McpAddress, StderrTail, connect, describe_fault
from perdure.config import McpSourceConfig, McpToolConfig, read_variable
from perdure.errors import ConfigFault, SourceAway
from perdure.text import one_line, printable

TOOL_PREFIX = "tool/"
MAX_DOCUMENTS = 1000  # of one server
MAX_DOCUMENT_BYTES = 1 << 20
MAX_TOTAL_BYTES = 1 << 26  # of one server
_MAX_PAGES = 100  # of its list of resources
_MAX_ADDRESS_CHARS = 500


class SourceDocument(NamedTuple):
    """A text that a server gave."""

    address: str  # the source's name, then the resource's URI, or the tool with a hash of its arguments
    text: str


@dataclass
class SourceReading:
    """What one server gave."""

    name: str
    server: str = ""  # as it calls itself, with its version
    documents: list[SourceDocument] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    refusals: list[tuple[str, str]] = field(default_factory=list)  # (address, why)
    n_bytes: int = 0
    has_all_resources: bool = False  # every resource was listed: one that is not there is gone

    def add(self, address: str, texts: list[str]) -> None:
        """Add the text of a document, unless it is empty or too large."""
        document, n_bytes = "\n\n".join(texts), sum(len(text.encode("utf-8", "replace")) for text in texts)
        if not document.strip():
            self.left_out["no text"] += 1
        elif n_bytes > MAX_DOCUMENT_BYTES:
            self.refusals.append((address, f"is larger than {MAX_DOCUMENT_BYTES:,} bytes"))
        elif self.n_bytes + n_bytes > MAX_TOTAL_BYTES or len(self.documents) >= MAX_DOCUMENTS:
            self.refusals.append((address, f"is beyond {MAX_DOCUMENTS:,} documents or {MAX_TOTAL_BYTES:,} bytes"))
        else:
            self.n_bytes += n_bytes
            self.documents.append(SourceDocument(address, document))


def read_source(name: str, source: McpSourceConfig) -> SourceReading:
    """Return the documents of a server. Raises SourceAway if it does not answer, ConfigFault for wrong settings."""
    if bool(source.command) == bool(source.url):
        raise ConfigFault(f"mcp.sources.{name} needs either command or url")
    reading, variables = SourceReading(name), {name: read_variable(name) or "" for name in source.environment}
    key = f"mcp.sources.{name}"
    address = McpAddress(key, tuple(source.command), variables, source.url, source.key_env, source.timeout_s)
    with closing(StderrTail()) as log:
        try:
            asyncio.run(_read_within_limit(reading, source, address, log))
        except (*FAULTS, ExceptionGroup) as error:
            raise SourceAway(
                f"{name}: {describe_fault(error, address, limit_s=source.limit_s)}{log.describe()}"
            ) from error
    return reading


async def _read_within_limit(
    reading: SourceReading, source: McpSourceConfig, address: McpAddress, log: StderrTail
) -> None:
    with anyio.fail_after(source.limit_s):
        async with connect(address, log) as client:
            info = client.server_info
            reading.server = printable(f"{info.name} {info.version}") if info else ""
            if source.resources and client.server_capabilities.resources is not None:
                await _read_resources(client, reading)
            for tool in source.tools:
                await _call_tool(client, tool, reading)


async def _read_resources(client: Client, reading: SourceReading) -> None:
    """Read every resource that the server lists; one that fails costs only itself."""
    for resource in await _list_resources(client, reading):
        address = make_address(reading.name, resource.uri)
        try:
            result = await client.read_resource(resource.uri)
        except MCPError as error:
            reading.refusals.append((address, f"cannot be read: {one_line(str(error), LOG_CHARS)}"))
        else:
            reading.add(address, _list_resource_texts(result, reading))


async def _list_resources(client: Client, reading: SourceReading) -> list[Resource]:
    """Return the resources of all pages, each address once."""
    resources: dict[str, Resource] = {}
    cursor = None
    for _ in range(_MAX_PAGES):
        page = await client.list_resources(cursor=cursor)
        resources.update((resource.uri, resource) for resource in page.resources)
        cursor = page.next_cursor
        if cursor is None or len(resources) > MAX_DOCUMENTS:
            break
    n_more = len(resources) - MAX_DOCUMENTS
    reading.has_all_resources = n_more <= 0 and cursor is None
    if not reading.has_all_resources:
        reading.left_out[f"more than {MAX_DOCUMENTS:,} resources"] += max(1, n_more)
    return list(resources.values())[:MAX_DOCUMENTS]


def _list_resource_texts(result: ReadResourceResult, reading: SourceReading) -> list[str]:
    texts = [content.text for content in result.contents if isinstance(content, TextResourceContents)]
    reading.left_out["binary"] += len(result.contents) - len(texts)
    return texts


async def _call_tool(client: Client, tool: McpToolConfig, reading: SourceReading) -> None:
    """Call a tool of the settings; an answer that is an error costs only itself."""
    arguments = json.dumps(tool.arguments, sort_keys=True) if tool.arguments else ""
    call = f"{tool.name}-{hashlib.sha256(arguments.encode()).hexdigest()[:8]}" if arguments else tool.name
    address = make_address(reading.name, f"{TOOL_PREFIX}{call}")
    try:
        result = await client.call_tool(tool.name, dict(tool.arguments))
    except MCPError as error:
        reading.refusals.append((address, f"cannot be called: {one_line(str(error), LOG_CHARS)}"))
        return
    texts = _list_answer_texts(result)
    if result.is_error:
        reading.refusals.append((address, f"answered an error: {one_line(' '.join(texts), LOG_CHARS)}"))
    else:
        reading.add(address, texts)


def _list_answer_texts(result: CallToolResult) -> list[str]:
    texts = [content.text for content in result.content if isinstance(content, TextContent)]
    has_only_structure = not texts and result.structured_content is not None
    return [json.dumps(result.structured_content, ensure_ascii=False, indent=1)] if has_only_structure else texts


def make_address(name: str, place: str) -> str:
    """Return the address of a resource or a tool of a source: one word, as a session is named."""
    return "".join(printable(f"{name}:{place}").split())[:_MAX_ADDRESS_CHARS]
