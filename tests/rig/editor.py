"""An editor: the client of the protocol's own package, which starts the real `perdure acp` and records what comes."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import acp
from acp.schema import (
    AcceptElicitationResponse,
    AllowedOutcome,
    ClientCapabilities,
    DeniedOutcome,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
    RequestPermissionResponse,
)

MODULE = "perdure.surfaces.cli"
NO_VARIABLES: Mapping[str, str] = {}
SETTINGS = """\
[models.roles.resident]
provider = "openai"
model = "scripted"
url = "{url}/v1"
window_tokens = 128000
[models.roles.summariser]
provider = "openai"
model = "small"
url = "{url}/v1"
[models.embedder]
kind = "off"
"""
Choose = Callable[[Any, Sequence[Any]], str | None]  # (call, options) -> the id of an option; None: cancelled


@dataclass
class Editor:
    """The client. `updates` are those of all sessions, in order."""

    choose: Choose = lambda call, options: options[0].option_id
    answer: str | None = None  # to every form
    updates: list[tuple[str, Any]] = field(default_factory=list)
    permissions: list[tuple[Any, list[Any]]] = field(default_factory=list)
    questions: list[tuple[str, Any]] = field(default_factory=list)
    agent: Any = None
    process: Any = None

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append((session_id, update))

    async def request_permission(self, session_id: str, tool_call: Any, options: list[Any], **_: Any) -> Any:
        self.permissions.append((tool_call, options))
        choice = self.choose(tool_call, options)
        if choice is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=choice))

    async def create_elicitation(self, message: str, mode: Any, **_: Any) -> Any:
        self.questions.append((message, mode))
        return AcceptElicitationResponse(action="accept", content={"answer": self.answer})

    # what a test reads --------------------------------------------------------------------------------

    def of(self, kind: str) -> list[Any]:
        return [update for _, update in self.updates if update.session_update == kind]

    def said(self, kind: str = "agent_message_chunk") -> str:
        return "".join(update.content.text for update in self.of(kind) if update.content.type == "text")

    def calls(self) -> list[tuple[str, str | None]]:
        """(id, status) of each update about a call, in order."""
        kinds = ("tool_call", "tool_call_update")
        return [(u.tool_call_id, u.status) for _, u in self.updates if u.session_update in kinds]

    async def begin(self, cwd: Path) -> str:
        return (await self.agent.new_session(cwd=str(cwd), mcp_servers=[])).session_id

    async def say(self, session: str, text: str) -> str:
        """Send a prompt; return why the turn ended."""
        return (await self.agent.prompt(session_id=session, prompt=[acp.text_block(text)])).stop_reason

    async def wait_for(self, kind: str, n: int = 1, *, limit_s: float = 30) -> None:
        async with asyncio.timeout(limit_s):
            while len(self.of(kind)) < n:
                await asyncio.sleep(0.01)


def make_environment(home: Path) -> dict[str, str]:
    path = os.environ.get("PATH", "/usr/bin:/bin")
    more = {"PERDURE_HOME": str(home), "HOME": str(home.parent), "USER": "ada", "LOGNAME": "ada", "TZ": "UTC"}
    return {"PATH": path, "PYTHONPATH": os.pathsep.join(sys.path), **more}


@asynccontextmanager
async def open_editor(
    home: Path, *words: str, forms: bool = False, variables: Mapping[str, str] = NO_VARIABLES, **options: Any
) -> AsyncIterator[Editor]:
    """Start `perdure acp`, and begin. forms: the editor shows forms. variables: more of its environment.

    Standard error goes to a file.
    """
    editor = Editor(**options)
    form = ElicitationCapabilities(form=ElicitationFormCapabilities())
    with (home.parent / "acp.err").open("ab") as errors:
        async with acp.spawn_agent_process(
            editor,  # type: ignore[arg-type]
            sys.executable, "-m", MODULE, "acp", *words,
            env={**make_environment(home), **variables}, cwd=home.parent, use_unstable_protocol=True,
            transport_kwargs={"stderr": errors.fileno(), "shutdown_timeout": 15},
        ) as (agent, process):  # fmt: skip
            editor.agent, editor.process = agent, process
            capabilities = ClientCapabilities(elicitation=form if forms else None)
            await agent.initialize(protocol_version=1, client_capabilities=capabilities)
            yield editor


def hold(home: Path, work: Callable[[Editor], Awaitable[Any]], *words: str, **options: Any) -> Any:
    """Let an editor do something with a process of its own, within a minute."""

    async def run() -> Any:
        async with asyncio.timeout(60), open_editor(home, *words, **options) as editor:
            return await work(editor)

    return asyncio.run(run())
