"""A scripted MCP server: its documents and faults are those of a JSON file.

    python mcp_source.py STATE.json             on standard input and output
    python mcp_source.py STATE.json SECRET      over HTTP; it prints its port, and refuses callers without the secret

The file: {"documents": {uri: text}, "answers": {tool: text}, "fault": "" | "silent" | "dies" | "endless" | "binary"}.
Every call of a tool adds its name to `calls` beside the file.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from pathlib import Path
from typing import Any

import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.types import (
    BlobResourceContents,
    CallToolResult,
    ListResourcesResult,
    ListToolsResult,
    ReadResourceResult,
    Resource,
    TextContent,
    TextResourceContents,
    Tool,
)

STATE = Path(sys.argv[1] if len(sys.argv) > 1 else "state.json")  # a test imports this module for its path


def load() -> dict[str, Any]:
    return json.loads(STATE.read_text())


async def list_resources(context: Any, params: Any) -> ListResourcesResult:
    state = load()
    resources = [Resource(uri=uri, name=uri) for uri in state.get("documents", {})]
    cursor = "more" if state.get("fault") == "endless" else None
    return ListResourcesResult(resources=resources, next_cursor=cursor)


async def read_resource(context: Any, params: Any) -> ReadResourceResult:
    uri, state = str(params.uri), load()
    if state.get("fault") == "binary":
        return ReadResourceResult(contents=[BlobResourceContents(uri=uri, blob="AAAA")])
    return ReadResourceResult(contents=[TextResourceContents(uri=uri, text=state["documents"][uri])])


async def list_tools(context: Any, params: Any) -> ListToolsResult:
    return ListToolsResult(tools=[Tool(name=name, input_schema={"type": "object"}) for name in load()["answers"]])


async def call_tool(context: Any, params: Any) -> CallToolResult:
    with STATE.with_name("calls").open("a") as file:
        file.write(f"{params.name} {json.dumps(params.arguments)}\n")
    answer = load().get("answers", {}).get(params.name)
    is_error = answer is None
    return CallToolResult(content=[TextContent(text=answer or "no such tool")], is_error=is_error)


def build_server() -> Server[Any]:
    return Server(
        "scripted", version="1.0", on_list_resources=list_resources, on_read_resource=read_resource,
        on_list_tools=list_tools, on_call_tool=call_tool,
    )  # fmt: skip


async def serve_pipes() -> None:
    server = build_server()
    async with stdio_server() as (read_stream, write_stream):
        await server.run(read_stream, write_stream, server.create_initialization_options())


def serve_http(secret: str) -> None:
    import uvicorn

    application = build_server().streamable_http_app()

    async def check_secret(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and (b"authorization", f"Bearer {secret}".encode()) not in scope["headers"]:
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b"no secret"})
        else:
            await application(scope, receive, send)

    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(check_secret, log_level="error")).run(sockets=[listener])


if __name__ == "__main__":
    fault = load().get("fault")
    if fault == "silent":
        time.sleep(600)
    if fault == "dies":
        sys.exit("the database is locked")
    if len(sys.argv) > 2:
        serve_http(sys.argv[2])
    else:
        anyio.run(serve_pipes)
