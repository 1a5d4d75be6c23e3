"""Serve one client: until it closes our standard input, ends us, or reads no more."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping
from typing import Any, cast

import acp

from perdure.agent.permission import Mode
from perdure.home import Home
from perdure.surfaces.acp.editor_agent import EditorAgent
from perdure.surfaces.acp.stdio import MessageStream
from perdure.surfaces.acp.transport import StdioTransport


def serve(
    stream: MessageStream,
    open_home: Callable[[], Home],
    *,
    params: Mapping[str, Any],
    mode: Mode | None,
    model: str,
) -> None:
    """Answer all that comes. params: of the `initialize` that was answered already."""

    async def run() -> None:
        transport, loop = StdioTransport(stream), asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # turns that go on are kept as far as they came
            loop.add_signal_handler(number, transport.end)
        agent = EditorAgent(open_home, params=params, mode=mode, model=model)
        try:
            await acp.run_agent(cast(acp.Agent, agent), transport, use_unstable_protocol=True)
        finally:
            await agent.close()

    asyncio.run(run())
