"""A conversation with a model, held by Perdure: each turn assembles the context afresh, asks, runs tools, and is kept.

Every entry is on disk before it is used, so a killed process loses nothing that anybody saw: a call without a result is
closed as "interrupted", and no tool runs twice by itself. What recall puts beside a message follows the rules of a hook
(`turn.py`): silence, projects, what this session was told already, and what left its context in a compaction.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from perdure import config, turn
from perdure.capture import events
from perdure.capture.events import HookEvent
from perdure.environ import local_now
from perdure.errors import (
    ModelCancelled,
    ModelFault,
    ModelRefused,
    TurnBudgetSpent,
)
from perdure.floor.platforms import API
from perdure.formats.perdure import (
    INTERRUPTED,
    Boundary,
    CallEntry,
    FileEntry,
    ImageEntry,
    Message,
    ModelChange,
    NativeEntry,
)
from perdure.models.chat import Chat, ChatReply
from perdure.regex import lazy_re
from perdure.session.assemble import assemble_messages
from perdure.session.blocks import FLOOR, PLATFORM, BlockFile
from perdure.session.budget import ContextSize
from perdure.session.calls import Decide, Tool, ToolOutput, allow_call, run_calls
from perdure.session.catalog import resolve_name
from perdure.session.chat_model import JOB, find_chat
from perdure.session.compact import Compactor, RoomRequest
from perdure.session.log import SessionLog, create_log, open_log, read_start, read_tree
from perdure.session.spending import make_usage_entry
from perdure.session.tree import list_branch_summaries, list_open_calls
from perdure.session.turn_budget import TurnBudget, TurnSpending
from perdure.types import OWN_RUNTIME

if TYPE_CHECKING:
    from perdure.home import Home

RECALL_MS = 1000  # a message waits for recall at most so long
_RESIDENT_MS = 300  # of it, for the resident home; it has its models loaded
NO_BUDGET = TurnBudget()
_MAX_SHRINKS = 2  # in one turn
# How providers refuse what does not fit their window; of llama.cpp seen, of the others as their documentation has it.
_TOO_LONG = lazy_re(r"(?i)context.{0,20}(?:length|size|window)|too long|too many tokens|maximum.{0,20}tokens")
# How providers refuse tools: Ollama, OpenRouter, llama.cpp and vLLM, as people report it to them.
_NO_TOOLS = lazy_re(
    r"(?i)not support tools|support tool use|(?:unsupported param: |\b)tools (?:param requires|not supported)"
    r"|unsupported param: tools|enable-auto-tool-choice"
)
NOT_RUN = "not run: a limit of this message is reached"


@dataclass(frozen=True)
class TurnListener:
    """Functions that are told what happens in a turn; each may be left out."""

    on_text: Callable[[str], None] | None = None  # a piece of the answer
    on_thought: Callable[[str], None] | None = None
    on_recall: Callable[[turn.HookReply], None] | None = None  # what recall put beside the message
    on_call: Callable[[CallEntry], None] | None = None  # a tool is about to run
    on_output: Callable[[Message], None] | None = None  # it has run
    on_compact: Callable[[str], None] | None = None  # "compressing…" begins and ends; tools are left out


@contextmanager
def _limit_time(max_s: float, cancel: threading.Event) -> Iterator[None]:
    """Set an event after so many seconds; 0: never."""
    timer = threading.Timer(max_s, cancel.set)
    timer.daemon = True
    if max_s:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Session:
    """One session, held by this process. Use it from one thread, and close it."""

    def __init__(
        self, home: Home, log: SessionLog, chat: Chat, *, tools: Sequence[Tool] = (), mode: str | None = None,
        decide: Decide = allow_call, budget: TurnBudget = NO_BUDGET, floor_end: str = "", platform: str = API,
    ) -> None:  # fmt: skip
        """Go on with a session. mode: "keyword" recalls without a model. decide: says whether a call may run.

        floor_end: stands behind the floor when that is made, at the beginning of a session. platform: the surface, a
        name of `floor/platforms.py`.
        """
        self._home, self._log, self._chat, self._mode = home, log, chat, mode
        self._decide, self._budget, self._floor_end, self._platform = decide, budget, floor_end, platform
        self._tools = {tool.spec.name: tool for tool in tools}
        self._blocks = BlockFile(home.path, log.session, is_kept=log.is_kept)
        self._listener = TurnListener()
        self._compactor = Compactor(home, log, self._blocks, tell=self._tell, mode=mode)
        # The resident home answers as the agent of its settings; another one is asked here.
        self._is_own_agent = config.load(home.path).agent == home.config.agent
        self._close_open_calls()

    @property
    def session(self) -> str:
        """The id of the session."""
        return self._log.session

    @property
    def log(self) -> SessionLog:
        """The log of the session."""
        return self._log

    @property
    def chat(self) -> Chat:
        """The model that answers."""
        return self._chat

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The names of the tools that the model may call."""
        return tuple(self._tools)

    def use_tools(self, tools: Sequence[Tool]) -> None:
        """Let the model call these tools from here on, and no others."""
        self._tools = {tool.spec.name: tool for tool in tools}

    def use_chat(self, chat: Chat) -> None:
        """Let another model answer from here on; it reads what was said until here."""
        self._chat = chat
        self._log.append(ModelChange(model=chat.name, **self._log.make_fields()))

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Archive the last turn, and give the session up."""
        self._log.close()

    # a turn -----------------------------------------------------------------------------------------------

    def say(
        self,
        text: str,
        *,
        images: Sequence[ImageEntry] = (),
        files: Sequence[FileEntry] = (),
        listener: TurnListener = TurnListener(),
        cancel: threading.Event | None = None,
        instruction: str = "",
        is_typed: bool = True,
    ) -> Message:
        """Send a message, and return the model's last answer; all of it is kept.

        instruction: stands beside the message, and nobody said it. is_typed: a person typed the message. Raises
        ModelFault: what was said until then is kept, and the next message goes on from there; TurnBudgetSpent. At the
        end of its time, `cancel` is set.
        """
        self._close_open_calls()
        fields = self._log.make_fields()
        message = Message(
            role="user", text=text, images=tuple(images), files=tuple(files), is_typed=is_typed, **fields
        )  # fmt: skip
        self._log.append(message)
        self._listener = listener
        try:
            beside = (self._recall(message, listener), instruction)
            self._blocks.write(message.id, "\n\n".join(filter(None, beside)))
            return self._answer(listener, cancel)
        finally:
            self._log.archive()

    def _recall(self, message: Message, listener: TurnListener) -> str:
        """Return the text beside a message: the recalled block, then time and place."""
        cwd = self._log.cwd or ""
        reply = self._ask_recall(HookEvent(OWN_RUNTIME, "prompt", self.session, cwd, prompt=message.text))
        if listener.on_recall:
            listener.on_recall(reply)
        location_line = self._home.floor.location_line(cwd=cwd or None, now=local_now())
        return "\n\n".join(filter(None, (reply.text, location_line)))

    def _ask_recall(self, event: HookEvent) -> turn.HookReply:
        """Return what recall has for an event: from the resident home, or from this process if none is in time."""
        if not self._log.is_kept:
            return turn.EMPTY_REPLY
        request = {"op": "event", "event": event._asdict(), "limit_ms": _RESIDENT_MS}
        started_s = time.monotonic()
        try:
            if self._is_own_agent:
                answer = events.ask_resident(self._home.path, request, timeout_s=_RESIDENT_MS / 1000)
                reply = turn.HookReply(str(answer.get("text") or ""), str(answer.get("notice") or ""))
                took_ms = (time.monotonic() - started_s) * 1000
                is_late = took_ms >= _RESIDENT_MS - turn.MARGIN_MS and reply == turn.EMPTY_REPLY
                if "error" not in answer and not is_late:
                    return reply
        except (OSError, ValueError):
            pass
        left_ms = RECALL_MS - int((time.monotonic() - started_s) * 1000)
        return turn.answer_event(self._home, event, limit_ms=left_ms, mode=self._mode)

    def _answer(self, listener: TurnListener, cancel: threading.Event | None) -> Message:
        """Ask the model, and run the tools that it calls, until it answers without a call."""
        cancel, spending, started_s = cancel or threading.Event(), TurnSpending(), time.monotonic()
        with _limit_time(self._budget.max_s, cancel):
            while True:
                try:
                    message = self._ask_model(listener, cancel)
                except ModelCancelled as error:
                    if spent := spending.find_spent(self._budget, took_s=time.monotonic() - started_s):
                        raise TurnBudgetSpent(spent) from error
                    raise
                spending.add(message)
                if not message.calls:
                    return message
                spent = spending.find_spent(self._budget, took_s=time.monotonic() - started_s)
                if spent:
                    for call in message.calls:
                        self._append_output(call, ToolOutput(NOT_RUN, is_error=True))
                    raise TurnBudgetSpent(spent)
                self._run_calls(message.calls, listener, cancel)

    def _ask_model(self, listener: TurnListener, cancel: threading.Event | None) -> Message:
        """Ask for one answer, and log it; a cancelled one as far as it came."""
        pieces: list[str] = []

        def take_text(piece: str) -> None:
            pieces.append(piece)
            if listener.on_text:
                listener.on_text(piece)

        try:
            reply = self._ask_within_window(take_text, listener.on_thought, cancel)
        except ModelFault as error:
            if pieces or isinstance(error, ModelCancelled):
                stop = "cancelled" if isinstance(error, ModelCancelled) else "failed"
                fields = self._log.make_fields()
                self._log.append(Message(role="assistant", text="".join(pieces), stop=stop, **fields))
            raise
        answer = self._make_answer(reply)
        self._log.append(answer)
        return answer

    def _ask_within_window(
        self, on_text: Callable[[str], None], on_thought: Callable[[str], None] | None, cancel: threading.Event | None
    ) -> ChatReply:
        """Make room and ask. A provider that counts more tokens than we do is asked again, with less; one whose model
        takes no tools, without them.
        """
        n_tries = 0
        while True:
            specs = [tool.spec for tool in self._tools.values()]
            request = self._make_request(cancel)
            self._compactor.make_room(request)
            messages = assemble_messages(self._log.find_path(), self._read_texts())
            try:
                return self._chat.reply(messages, tools=specs, on_text=on_text, on_thought=on_thought, cancel=cancel)
            except ModelRefused as error:
                if specs and _NO_TOOLS.search(error.detail):
                    self.use_tools(())
                    self._tell(f"{self._chat.name} takes no tools, so it talks without them ({error.detail})")
                    continue
                n_tries += 1
                if n_tries > _MAX_SHRINKS or not _TOO_LONG.search(error.detail):
                    raise
                self._compactor.shrink_window(request)

    def _make_answer(self, reply: ChatReply) -> Message:
        return Message(
            role="assistant",
            text=reply.text,
            thought=reply.thought,
            calls=tuple(CallEntry(id=call.id, name=call.name, input=call.input) for call in reply.calls),
            native=NativeEntry(provider=reply.native.provider, blocks=reply.native.blocks) if reply.native else None,
            provider=self._chat.name.partition(":")[0],
            model=reply.model or self._chat.name,
            stop=reply.stop,
            usage=make_usage_entry(self._home, self._chat.name, reply.usage, is_reported=reply.is_usage_reported),
            **self._log.make_fields(),
        )

    def _run_calls(self, calls: Sequence[CallEntry], listener: TurnListener, cancel: threading.Event) -> None:
        """Run the calls of an answer, and log what they give back."""
        for call, output in run_calls(calls, self._tools, cancel, decide=self._decide, on_call=listener.on_call):
            message = self._append_output(call, output)
            if listener.on_output:
                listener.on_output(message)

    def _append_output(self, call: CallEntry, output: ToolOutput) -> Message:
        message = Message(
            role="tool",
            text=output.text,
            call_id=call.id,
            tool=call.name,
            is_error=output.is_error,
            images=output.images,
            permission=output.permission,
            **self._log.make_fields(),
        )
        self._log.append(message)
        return message

    def _close_open_calls(self) -> None:
        """Give the calls that a killed process left without a result one that says so."""
        for call in list_open_calls(self._log.find_path()):
            self._append_output(call, ToolOutput(INTERRUPTED, is_error=True))

    # the window -----------------------------------------------------------------------------------------

    def measure(self) -> ContextSize:
        """Return how much of the model's window the context fills now."""
        return self._compactor.measure(self._make_request())

    def compact(
        self, focus: str = "", *, listener: TurnListener = TurnListener(), cancel: threading.Event | None = None
    ) -> Boundary | None:
        """Put a summary in place of the middle of the session now; None if there is nothing to put away, or if the
        summariser failed. focus: what the summary must retain above all. Raises ModelCancelled.
        """
        self._listener = listener
        try:
            return self._compactor.compact(self._make_request(cancel), focus=focus, cause="asked")
        finally:
            self._log.archive()

    def _make_request(self, cancel: threading.Event | None = None) -> RoomRequest:
        return RoomRequest(self._chat, self._read_texts(), [tool.spec for tool in self._tools.values()], cancel)

    def _tell(self, text: str) -> None:
        if self._listener.on_compact:
            self._listener.on_compact(text)

    # what stands beside the messages --------------------------------------------------------------------

    def copy_texts(self, session: str) -> None:
        """Take the texts of another session, so that a fork begins like its origin, byte for byte."""
        for name, text in BlockFile(self._home.path, session, is_kept=True).read().items():
            self._blocks.write(name, text)

    def _read_texts(self) -> Mapping[str, str]:
        """Return the floor and the texts beside the messages, summaries of left branches among them.

        A floor that is gone is made anew; so is one that was made for another surface, which can show other things.
        """
        texts = self._blocks.read()
        if FLOOR not in texts or texts.get(PLATFORM, self._platform) != self._platform:
            cwd = self._log.cwd
            layers = self._home.floor.layers(cwd=cwd, platform=self._platform, now=local_now())
            self._blocks.write(FLOOR, "\n\n".join(filter(None, (layers.text, self._floor_end))))
            self._blocks.write(PLATFORM, self._platform)
            texts = self._blocks.read()
        left_summaries = list_branch_summaries(self._log.find_path())
        return texts | {
            entry_id: "\n\n".join(filter(None, (texts.get(entry_id), summary)))
            for entry_id, summary in left_summaries.items()
        }


def open_session(  # noqa: PLR0913 - a caller may know all of this; all but the home have defaults
    home: Home,
    resume: str = "",
    *,
    fork: bool = False,
    cwd: str | None = None,
    chat: Chat | None = None,
    tools: Sequence[Tool] = (),
    mode: str | None = None,
    job: str = JOB,
    decide: Decide = allow_call,
    budget: TurnBudget = NO_BUDGET,
    floor_end: str = "",
    platform: str = API,
    spawned_by: tuple[str, str] | None = None,
) -> Session:
    """Begin a session, or go on with one.

    resume: the beginning of the id of a session, its number in the list, or "last" for the last one of this project;
    or the beginning of the id of an entry: then the session goes on from there, and what was said after it stays as
    another branch. fork: go on as a session of its own. chat: your own model, instead of the one that the settings give
    the role resident. decide: says whether a call may run. budget: of one message. floor_end: stands behind the floor
    of a new session. platform: the surface, for the variable of the system prompt. spawned_by: (session, entry) of the
    agent whose sub-agent begins. Raises SessionMissing, SessionHeld, ModelMissing.
    """
    chat = chat or find_chat(home, job=job)
    options: dict[str, Any] = {
        "tools": tools, "mode": mode, "decide": decide, "budget": budget, "floor_end": floor_end, "platform": platform,
    }  # fmt: skip
    if not resume:
        return Session(home, create_log(home, cwd=cwd, spawned_by=spawned_by), chat, **options)
    session, entry = resolve_name(home, resume, cwd=cwd)
    if fork:
        leaf, cwd = entry or read_tree(home, session).leaf, cwd or read_start(home, session).cwd or None
        forked = Session(home, create_log(home, cwd=cwd, forked_from=(session, leaf)), chat, **options)
        forked.copy_texts(session)
        return forked
    log = open_log(home, session)
    if entry:
        log.move_leaf(entry)
    return Session(home, log, chat, **options)
