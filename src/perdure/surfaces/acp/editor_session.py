"""One session of an editor: the agent of this home in a thread of its own, and what happens in it as updates.

It is held like any other session of ours: kept entry by entry, with the floor and recall, and with the permissions of
the agent. A client that is gone cancels the turn, which is kept as far as it came.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import acp
from acp import helpers
from acp.schema import (
    ConfigOptionUpdate,
    PermissionOption,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SessionInfoUpdate,
    SessionMode,
    SessionModeState,
    StopReason,
    ToolCallUpdate,
    UsageUpdate,
)

from perdure.agent.agent import Agent, open_agent
from perdure.agent.attachments import Attachments, attach_files
from perdure.agent.permission import MODE_MEANINGS, MODES, Mode, PermissionAnswer, PermissionRequest
from perdure.agent.self_edit import decide_edit
from perdure.agent.tools.files import FileChange, preview_change
from perdure.errors import ModelCancelled, PerdureError, SessionMissing, ToolError, TurnBudgetSpent, UsageError
from perdure.floor.platforms import EDITOR
from perdure.formats.perdure import CallEntry, Message
from perdure.home import Home
from perdure.models.roles import CLIENTS, ROLES
from perdure.session.catalog import resolve_name, summarise_session
from perdure.session.chat_model import find_chat
from perdure.session.session import TurnListener
from perdure.session.spending import sum_by_job
from perdure.surfaces.acp import updates
from perdure.surfaces.acp.client_link import ClientLink
from perdure.surfaces.acp.commands import OFFERED, list_commands, run_command_line
from perdure.surfaces.acp.home_thread import HomeThread
from perdure.surfaces.acp.prompts import EditorPrompt, PromptBlock, fence_text, read_prompt
from perdure.surfaces.acp.servers import NO_SERVERS, ServerChoice
from perdure.surfaces.chat.notices import format_recall
from perdure.surfaces.chat.slash_commands import find_command_line, find_nearest, parse_command
from perdure.surfaces.session_costs import list_costs

Result = TypeVar("Result")
_SERVERS_S = 10.0  # a message waits so long after the beginning of the session for MCP servers that still start
_STOPS: dict[str, StopReason] = {"length": "max_tokens", "refused": "refusal", "cancelled": "cancelled"}


@dataclass(frozen=True)
class SessionRequest:
    """The session that a client wants."""

    cwd: Path
    resume: str = ""  # "" for a new one
    fork: bool = False
    mode: Mode | None = None  # instead of that in agent.yaml
    model: str = ""  # instead of the role resident: a role, or a name at its provider
    servers: ServerChoice = NO_SERVERS  # MCP servers that the client has for it


class EditorSession:
    """One session. Its methods may be called from any thread; what they return is there when the turn before ended."""

    def __init__(self, client: ClientLink, open_home: Callable[[], Home], request: SessionRequest) -> None:
        """Begin or go on; `opened` tells when it is open. Close it."""
        self._client, self._request = client, request
        self._thread = HomeThread(open_home, "acp-session")
        self._cancel = threading.Event()  # of the turn that goes on
        self._cancels: list[threading.Event] = []  # of the turns that go on or wait
        self._is_gone = False  # the client does not read any more
        self._shown: set[str] = set()  # ids of the calls of this turn that the client knows
        self._changes: dict[str, FileChange] = {}  # of calls of this turn
        self._n_questions = 0
        self._notices = list(request.servers.problems)
        self.opened: Future[str] = self._thread.submit(self._open)

    def _open(self, home: Home) -> str:
        """Return the id of the session."""
        request = self._request
        if request.resume and resolve_name(home, request.resume, cwd=None)[0] != request.resume:
            raise SessionMissing(request.resume)
        self._agent: Agent = open_agent(
            home, request.resume, fork=request.fork, cwd=str(request.cwd),
            chat=find_chat(home, request.model) if request.model else None, mode=request.mode,
            on_ask=self._ask_permission, on_question=self._ask_question, mcp_servers=request.servers.servers,
            platform=EDITOR, waits_for_servers=False,
        )  # fmt: skip
        self._model = request.model or self._agent.definition.model or "resident"
        self._notices += [*self._agent.notices, *home.floor.find_notices().values()]
        if problem := self._agent.tools_problem:
            self._notices.append(f"The model has no tools: {problem}.")
        self._models = _list_models(home)
        self.session = self._agent.session.session
        return self.session

    def submit(self, function: Callable[[Home], Result]) -> Future[Result]:
        """Run a function in the thread of the session."""
        return self._thread.submit(function)

    @property
    def is_answering(self) -> bool:
        """True while a turn goes on that was not cancelled."""
        return not all(cancel.is_set() for cancel in list(self._cancels))

    def cancel(self) -> None:
        """Cancel the turns that go on or wait."""
        for cancel in list(self._cancels):
            cancel.set()

    def close(self) -> Future[None]:
        """Cancel the turn, keep what came of it, and give the session up."""
        self.cancel()

        def close(_: Home) -> None:
            if self.opened.exception() is None:
                self._agent.close()

        closed = self._thread.submit(close)
        self._thread.close()
        return closed

    def join(self, timeout_s: float) -> bool:
        """Wait until the session is given up; False if that takes longer."""
        return self._thread.join(timeout_s)

    # what a client asks for -------------------------------------------------------------------------------

    def replay(self, _: Home) -> None:
        """Tell the client all that was said."""
        for update in updates.replay(self._agent.session.log.find_path(), self._agent.folders):
            self._tell(update)

    def offer_commands(self, _: Home) -> None:
        """Tell the client which commands a person may type."""
        self._tell(helpers.update_available_commands(list_commands()))

    def set_mode(self, mode: str) -> None:
        """Let another mode decide from now on, in the turn that goes on too. Raises UsageError."""
        known = next((known for known in MODES if known == mode), None)
        if known is None:
            raise UsageError(f"mode {mode!r} (known: {', '.join(MODES)})")
        self._agent.gate.mode = known

    def set_model(self, home: Home, model: str) -> None:
        """Let another model answer from here on. Raises ModelMissing, ConfigFault."""
        if model != self._model:
            self._agent.use_chat(find_chat(home, model))
            self._model = model

    def describe_modes(self) -> SessionModeState:
        """Return the modes, for clients that know no options."""
        modes = [SessionMode(id=mode, name=mode.title(), description=MODE_MEANINGS[mode]) for mode in MODES]
        return SessionModeState(current_mode_id=self._agent.gate.mode, available_modes=modes)

    def describe_options(self) -> list[SessionConfigOptionSelect]:
        """Return the mode and the model with what may be chosen."""
        models = self._models
        if self._model not in dict(models):
            models = [(self._model, self._agent.session.chat.name), *models]
        mode = SessionConfigOptionSelect(
            id="mode", name="Mode", category="mode", type="select", current_value=self._agent.gate.mode,
            description=self._agent.sandbox.summary,
            options=[
                SessionConfigSelectOption(value=mode, name=mode.title(), description=MODE_MEANINGS[mode])
                for mode in MODES
            ],
        )  # fmt: skip
        model = SessionConfigOptionSelect(
            id="model", name="Model", category="model", type="select", current_value=self._model,
            options=[SessionConfigSelectOption(value=value, name=name) for value, name in models],
        )  # fmt: skip
        return [mode, model]

    # a turn -----------------------------------------------------------------------------------------------

    def prompt(self, blocks: Sequence[PromptBlock]) -> Future[StopReason]:
        """Send a message, or run a command, and return why the turn ended. Raises ModelFault and others of ours."""
        cancel = threading.Event()
        self._cancels.append(cancel)

        def run(home: Home) -> StopReason:
            self._cancel = cancel
            self._shown.clear()
            self._changes.clear()
            try:
                self._take_server_tools()
                for notice in self._notices:
                    self._say(f"{notice}\n\n")
                self._notices = []
                return self._answer(home, blocks)
            except ModelCancelled:
                return "cancelled"
            finally:
                self._cancels.remove(cancel)

        return self._thread.submit(run)

    def _take_server_tools(self) -> None:
        """Add the tools of MCP servers that have answered by now; of one that is slow, they come in a later turn."""
        agent = self._agent
        n_notices, had_problem = len(agent.notices), bool(agent.tools_problem)
        agent.take_server_tools(_SERVERS_S, self._cancel)
        self._notices += agent.notices[n_notices:]
        if agent.tools_problem and not had_problem:
            self._notices.append(f"The model has no tools: {agent.tools_problem}.")

    def _answer(self, home: Home, blocks: Sequence[PromptBlock]) -> StopReason:
        message = read_prompt(blocks, self._request.cwd)
        for problem in message.problems:
            self._think(f"{problem}\n\n")
        if not message.text.strip() and not message.images:
            raise UsageError("the prompt is empty")
        command = parse_command(message.text) if len(blocks) == 1 else None
        return self._run_command(home, *command) if command else self._run_turn(message)

    def _run_turn(self, message: EditorPrompt) -> StopReason:
        session = self._agent.session
        is_first = not any(isinstance(entry, Message) for entry in session.log.tree)
        try:
            attachments, listener = self._attach(message), self._make_listener()
            answer = self._agent.say(message.text, attachments, listener=listener, cancel=self._cancel)
        except TurnBudgetSpent as error:
            self._say(str(error))
            return "max_turn_requests"
        finally:
            self._tell_state(is_first=is_first)
        return _STOPS.get(answer.stop, "end_turn")

    def _attach(self, message: EditorPrompt) -> Attachments:
        """Return what goes with a message: what the editor gave, and the files that it links to, as in a chat."""
        window_tokens = self._agent.session.chat.window_tokens
        named = attach_files(message.mentions, self._agent.folders, window_tokens=window_tokens)
        for problem in named.problems:
            self._think(f"{problem}\n\n")
        return Attachments((*message.files, *named.files), (*message.images, *named.images))

    def _tell_state(self, *, is_first: bool) -> None:
        """Tell how full the window is, and of a new session its title."""
        session = self._agent.session
        size = session.measure()
        self._tell(UsageUpdate(session_update="usage_update", used=size.n_tokens, size=size.window_tokens))
        if is_first:
            title = summarise_session(self.session, session.log.tree).title
            now = datetime.now(UTC).isoformat()
            self._tell(SessionInfoUpdate(session_update="session_info_update", title=title, updated_at=now))

    def _make_listener(self) -> TurnListener:
        return TurnListener(
            on_text=self._say,
            on_thought=self._think,
            on_recall=lambda reply: self._think(f"{format_recall(reply.notice)}\n\n") if reply.notice else None,
            on_call=self._show_call,
            on_output=self._show_output,
            on_compact=lambda text: self._think(f"{text}\n\n"),
        )

    def _tell(self, update: Any) -> None:
        """Send an update. If the client is gone, cancel the turn: what came of it is kept."""
        if not self._is_gone and not self._client.update(self.session, update):
            self._is_gone = True
            self._cancel.set()

    def _say(self, text: str) -> None:
        if text:
            self._tell(helpers.update_agent_message_text(text))

    def _think(self, text: str) -> None:
        if text:
            self._tell(helpers.update_agent_thought_text(text))

    def _show_call(self, call: CallEntry) -> None:
        """Tell that a call begins to run."""
        if call.id in self._shown:
            self._tell(updates.run_call(call.id))
            return
        self._show_waiting_call(call, preview_change(self._agent.folders, call.name, call.input), is_running=True)

    def _show_waiting_call(
        self, call: CallEntry, change: FileChange | None, *, is_running: bool = False, reason: str = ""
    ) -> ToolCallUpdate:
        start = updates.start_call(call, self._agent.folders, change, is_running=is_running, reason=reason)
        self._shown.add(call.id)
        if change is not None:
            self._changes[call.id] = change
        self._tell(start)
        return ToolCallUpdate(**{name: getattr(start, name) for name in ToolCallUpdate.model_fields})

    def _show_output(self, output: Message) -> None:
        """Tell how a call ended; of one that was refused before anybody saw it, what it was, too."""
        if output.call_id not in self._shown and (call := self._find_call(output.call_id)):
            self._show_waiting_call(call, None)
        self._tell(updates.finish_call(output, self._changes.get(output.call_id)))

    def _find_call(self, call_id: str) -> CallEntry | None:
        path = self._agent.session.log.find_path()
        calls = (call for entry in reversed(path) if isinstance(entry, Message) for call in entry.calls)
        return next((call for call in calls if call.id == call_id), None)

    # questions to the person ------------------------------------------------------------------------------

    def _ask_permission(self, request: PermissionRequest) -> PermissionAnswer:
        reason = f"Asks, because {request.reason}."
        shown = self._show_waiting_call(request.call, request.change, reason=reason)
        try:
            choice = self._choose(shown, _list_answers(request))
        except acp.RequestError as error:
            return PermissionAnswer("deny", f"the editor cannot ask: {error}")
        if choice is None:  # so a client answers when a turn is cancelled
            self._cancel.set()
            return PermissionAnswer("deny", "the turn was cancelled")
        return PermissionAnswer("once" if choice == "once" else "always" if choice == "always" else "deny")

    def _ask_question(self, question: str, choices: Sequence[str]) -> str | None:
        try:
            if self._client.has_forms:
                return self._client.ask(self.session, question, choices, self._cancel)
            if not choices:
                raise ToolError("this editor cannot ask for words. Ask in your answer, and end the turn with it")
            return self._ask_choice(question, choices)
        except acp.RequestError as error:
            raise ToolError(f"the editor cannot ask the person: {error}") from error

    def _ask_choice(self, question: str, choices: Sequence[str]) -> str | None:
        """Return one of some answers, asked as a permission is, for clients without forms."""
        options = [PermissionOption(option_id=str(n), name=c, kind="allow_once") for n, c in enumerate(choices)]
        options.append(PermissionOption(option_id="none", name="No answer", kind="reject_once"))
        self._n_questions += 1
        call = ToolCallUpdate(tool_call_id=f"question-{self._n_questions}", title=question, kind="other")
        choice = self._choose(call, options)
        return {str(n): words for n, words in enumerate(choices)}.get(choice or "")

    def _choose(self, call: ToolCallUpdate, options: Sequence[PermissionOption]) -> str | None:
        try:
            return self._client.choose(self.session, call, options, self._cancel)
        except ConnectionError:
            self._is_gone = True
            return None

    # commands ---------------------------------------------------------------------------------------------

    def _run_command(self, home: Home, name: str, argument: str) -> StopReason:
        command = next((command for command in OFFERED if command.name == name), None)
        if command is None:
            nearest = find_nearest(name)
            known = {command.name for command in OFFERED}
            self._say(f"There is no command /{name}: {f'did you mean /{nearest}?' if nearest in known else '/help lists them'}")  # fmt: skip  # noqa: E501
        elif not argument and command.argument and not command.argument.startswith("["):
            self._say(f"/{name} {command.argument}: {command.help}")
        elif line := find_command_line(name, argument, self.session):
            printed = run_command_line(home.path, line, self._request.cwd, self._cancel)
            if self._cancel.is_set():
                return "cancelled"
            self._say(fence_text(printed, "text"))
        else:
            self._run_own_command(home, name, argument)
        return "end_turn"

    def _run_own_command(self, home: Home, name: str, argument: str) -> None:
        session = self._agent.session
        if name == "compact":
            boundary = session.compact(argument, listener=self._make_listener(), cancel=self._cancel)
            if boundary is None:
                self._say("Nothing was left out: the session is as it was.")
            self._tell_state(is_first=False)
        elif name == "model":
            if argument:
                self.set_model(home, argument)
                self._tell_options()
            self._say(f"{session.chat.name}, {session.measure().window_tokens:,} tokens of context")
        elif name == "mode":
            if argument:
                self.set_mode(argument)
                self._tell(helpers.update_current_mode(argument))
                self._tell_options()
            self._say(self._describe_mode())
        elif name in ("approve", "reject"):
            try:
                self._say(decide_edit(home, argument, is_approved=name == "approve", surface="editor").words)
            except PerdureError as error:
                self._say(str(error))
        elif name == "cost":
            self._say("\n".join(list_costs(sum_by_job(session.log.tree))))
        elif name == "help":
            rows = [f"- `/{command.name}{f' {command.argument}' if command.argument else ''}`: {command.help}" for command in OFFERED]  # fmt: skip  # noqa: E501
            self._say("\n".join(rows))

    def _describe_mode(self) -> str:
        agent = self._agent
        names = ", ".join(agent.session.tool_names)
        tools = f"The model may call: {names}." if names else f"The model has no tools: {agent.tools_problem or 'agent.yaml gives none'}."  # fmt: skip  # noqa: E501
        return f"Mode {agent.gate.mode}: {MODE_MEANINGS[agent.gate.mode]}.\n\n{tools}\n\n{agent.sandbox.summary}"

    def _tell_options(self) -> None:
        options: Any = self.describe_options()
        self._tell(ConfigOptionUpdate(session_update="config_option_update", config_options=options))


def _list_models(home: Home) -> list[tuple[str, str]]:
    """Return (role, name) of the models of roles that can talk."""
    configs = [(role, getattr(home.config.models.roles, role)) for role in ROLES]
    return [
        (role, f"{config.provider}:{config.model} ({role})")
        for role, config in configs
        if config.provider and config.provider not in CLIENTS
    ]


def _list_answers(request: PermissionRequest) -> list[PermissionOption]:
    """Return what a person may answer. `always` holds until the session is closed."""
    return [
        PermissionOption(option_id="once", name="Allow once", kind="allow_once"),
        PermissionOption(option_id="always", name=f"Always allow {request.always_scope}", kind="allow_always"),
        PermissionOption(option_id="deny", name="Deny", kind="reject_once"),
    ]
