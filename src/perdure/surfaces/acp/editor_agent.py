"""The agent that the protocol's package calls: it opens, lists and closes sessions, and gives requests to them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import acp
from acp.schema import (
    ClientCapabilities,
    CloseSessionResponse,
    ForkSessionResponse,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PromptResponse,
    ResumeSessionResponse,
    SessionInfo,
    SetSessionConfigOptionResponse,
    SetSessionModeResponse,
)

from perdure.agent.permission import Mode
from perdure.errors import NotFound, PerdureError, UsageError
from perdure.home import Home
from perdure.session.catalog import list_sessions
from perdure.surfaces.acp.client_link import ClientLink
from perdure.surfaces.acp.editor_session import EditorSession, SessionRequest
from perdure.surfaces.acp.greeting import build_greeting, has_forms
from perdure.surfaces.acp.home_thread import HomeThread
from perdure.surfaces.acp.prompts import PromptBlock
from perdure.surfaces.acp.servers import read_servers

CLOSE_S = 5.0  # the end waits so long for turns to end; what was said is on disk before
PAGE_SIZE = 50  # sessions of one answer to session/list
_NOT_FOUND, _INVALID_PARAMS, _INTERNAL = -32002, -32602, -32603


class EditorAgent:
    """The agent of one connection. Its handlers run in the event loop, all work in the threads of the sessions."""

    def __init__(
        self, open_home: Callable[[], Home], *, params: Mapping[str, Any], mode: Mode | None, model: str
    ) -> None:
        """params: of `initialize`. mode, model: of new sessions, instead of the settings."""
        self._open_home, self._mode, self._model = open_home, mode, model
        self._has_forms = has_forms(params)
        self._sessions: dict[str, EditorSession] = {}
        self._open_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by the id of a session
        self._lobby = HomeThread(open_home, "acp-lobby")  # for what belongs to no session
        self._tasks: set[asyncio.Task[Any]] = set()

    def on_connect(self, conn: acp.Client) -> None:
        """Take the connection to the client."""
        self._client = ClientLink(conn, asyncio.get_running_loop(), has_forms=self._has_forms)

    async def close(self) -> None:
        """Cancel all turns, keep what came of them, and give the sessions up."""
        self._client.close()
        for session in self._sessions.values():
            session.close()
        self._lobby.close()
        waits = (asyncio.to_thread(session.join, CLOSE_S) for session in self._sessions.values())
        await asyncio.gather(*waits)

    async def initialize(self, client_capabilities: ClientCapabilities | None = None, **_: Any) -> InitializeResponse:
        """Begin again, or late: an `initialize` that came first was answered before this package was loaded."""
        elicitation = client_capabilities.elicitation if client_capabilities else None
        self._client.has_forms = elicitation is not None and elicitation.form is not None
        return InitializeResponse.model_validate(build_greeting())

    # sessions ---------------------------------------------------------------------------------------------

    async def new_session(self, cwd: str, mcp_servers: Sequence[Any] = (), **_: Any) -> NewSessionResponse:
        """Begin a session."""
        session = await self._open(self._make_request(cwd, mcp_servers))
        return NewSessionResponse(session_id=session.session, **self._describe(session))

    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: Sequence[Any] | None = None, **_: Any
    ) -> LoadSessionResponse:
        """Go on with a session, and tell the client all that was said in it."""
        session = await self._find_or_open(cwd, session_id, mcp_servers)
        with _to_request_errors():
            await asyncio.wrap_future(session.submit(session.replay))
        return LoadSessionResponse(**self._describe(session))

    async def resume_session(
        self, cwd: str, session_id: str, mcp_servers: Sequence[Any] | None = None, **_: Any
    ) -> ResumeSessionResponse:
        """Go on with a session; the client knows what was said in it."""
        session = await self._find_or_open(cwd, session_id, mcp_servers)
        return ResumeSessionResponse(**self._describe(session))

    async def fork_session(
        self, cwd: str, session_id: str, mcp_servers: Sequence[Any] | None = None, **_: Any
    ) -> ForkSessionResponse:
        """Go on with a session as one of its own."""
        session = await self._open(self._make_request(cwd, mcp_servers, resume=session_id, fork=True))
        return ForkSessionResponse(session_id=session.session, **self._describe(session))

    async def list_sessions(self, cwd: str | None = None, cursor: str | None = None, **_: Any) -> ListSessionsResponse:
        """Return sessions, the one in which something was said last first; of one folder, if the client names it."""
        with _to_request_errors():
            if cursor and not cursor.isdecimal():
                raise UsageError(f"cursor {cursor!r} is none of ours")
            infos = await asyncio.wrap_future(self._lobby.submit(lambda home: _list_infos(home, cwd)))
        start = int(cursor or 0)
        end = start + PAGE_SIZE
        return ListSessionsResponse(sessions=infos[start:end], next_cursor=str(end) if end < len(infos) else None)

    async def close_session(self, session_id: str, **_: Any) -> CloseSessionResponse:
        """Cancel what goes on in a session, and give it up."""
        session = self._get(session_id)
        del self._sessions[session_id]
        with _to_request_errors():
            await asyncio.wrap_future(session.close())
        return CloseSessionResponse()

    def _make_request(self, cwd: str, servers: Sequence[Any] | None, *, resume: str | None = None, fork: bool = False) -> SessionRequest:  # fmt: skip  # noqa: E501
        folder = Path(cwd)
        if resume is not None and not resume:
            raise acp.RequestError(_NOT_FOUND, "the id of the session is empty")
        if not folder.is_absolute() or not folder.is_dir():
            raise acp.RequestError(_INVALID_PARAMS, f"cwd {cwd!r} is no absolute path of a folder")
        choice = read_servers(servers or ())
        return SessionRequest(folder.resolve(), resume or "", fork, self._mode, self._model, choice)

    async def _find_or_open(self, cwd: str, session_id: str, servers: Sequence[Any] | None) -> EditorSession:
        """Return a session; of several requests at once for the same one, the first opens it for all."""
        async with self._open_locks.setdefault(session_id, asyncio.Lock()):
            if session_id in self._sessions:
                return self._sessions[session_id]
            return await self._open(self._make_request(cwd, servers, resume=session_id))

    async def _open(self, request: SessionRequest) -> EditorSession:
        session = EditorSession(self._client, self._open_home, request)
        try:
            with _to_request_errors():
                session_id = await asyncio.wrap_future(session.opened)
        except BaseException:
            session.close()
            raise
        self._sessions[session_id] = session
        return session

    def _describe(self, session: EditorSession) -> dict[str, Any]:
        """Return the modes and options of a session; its commands follow the answer."""
        task = asyncio.create_task(self._offer_commands(session))
        self._tasks.add(task)  # the loop itself would forget it
        task.add_done_callback(self._tasks.discard)
        return {"modes": session.describe_modes(), "config_options": session.describe_options()}

    async def _offer_commands(self, session: EditorSession) -> None:
        session.submit(session.offer_commands)

    def _get(self, session_id: str) -> EditorSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise acp.RequestError(_NOT_FOUND, f"session {session_id!r} is not open: load or resume it first")
        return session

    # in a session -----------------------------------------------------------------------------------------

    async def prompt(self, session_id: str, prompt: Sequence[PromptBlock], **_: Any) -> PromptResponse:
        """Answer a prompt."""
        session = self._get(session_id)
        if session.is_answering:
            raise acp.RequestError(_INVALID_PARAMS, "a turn of this session goes on: wait for its end, or cancel it")
        with _to_request_errors():
            stop_reason = await asyncio.wrap_future(session.prompt(prompt))
        return PromptResponse(stop_reason=stop_reason)

    async def cancel(self, session_id: str, **_: Any) -> None:
        """Cancel the turn that goes on in a session."""
        if session := self._sessions.get(session_id):
            session.cancel()

    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> SetSessionModeResponse:
        """Let another mode decide what may run."""
        with _to_request_errors():
            self._get(session_id).set_mode(mode_id)
        return SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **_: Any
    ) -> SetSessionConfigOptionResponse:
        """Choose a mode or a model. Another model answers after the turn that goes on."""
        session = self._get(session_id)
        with _to_request_errors():
            if config_id == "mode":
                session.set_mode(str(value))
            elif config_id == "model":
                await asyncio.wrap_future(session.submit(lambda home: session.set_model(home, str(value))))
            else:
                raise UsageError(f"option {config_id!r} (known: mode, model)")
        options: Any = session.describe_options()
        return SetSessionConfigOptionResponse(config_options=options)


def _list_infos(home: Home, cwd: str | None) -> list[SessionInfo]:
    """Return the sessions that a person held, as the protocol describes them; without a folder they cannot."""
    overviews = [item.overview for item in list_sessions(home)]
    return [
        SessionInfo(session_id=o.session, cwd=o.cwd, title=o.title or None, updated_at=o.updated_at.isoformat())
        for o in overviews
        if o.cwd and not o.is_subagent and cwd in (None, o.cwd)
    ]


@contextlib.contextmanager
def _to_request_errors() -> Iterator[None]:
    """Turn our errors into those of the protocol: their message is what the person reads."""
    try:
        yield
    except PerdureError as error:
        code = (
            _NOT_FOUND
            if isinstance(error, NotFound)
            else _INVALID_PARAMS
            if isinstance(error, UsageError)
            else _INTERNAL
        )
        raise acp.RequestError(code, str(error), {"code": error.code}) from error
