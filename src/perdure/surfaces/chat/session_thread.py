"""The home and the session of a chat, in a thread of their own, so that the terminal answers a key at any moment.

Every function that is given to `submit` runs there, one after the other. What the terminal shows of the session comes
over as values: `status`, and the events of a turn.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from perdure.errors import PerdureError
from perdure.floor.platforms import CHAT
from perdure.surfaces.chat.person_question import ModelQuestion, TurnLink
from perdure.surfaces.chat.status_bar import SessionStatus

if TYPE_CHECKING:
    from perdure.agent.agent import Agent
    from perdure.agent.attachments import Attachments
    from perdure.agent.permission import Mode, PermissionAnswer, PermissionRequest
    from perdure.formats.perdure import AnyEntry, Boundary, Message
    from perdure.home import Home
    from perdure.session.session import Session
    from perdure.session.spending import SessionTotals

Result = TypeVar("Result")
CLOSE_S = 5.0  # leaving waits so long for work that goes on; what was said is on disk before


class SessionHolder:
    """Holds one session after the other. Every method but `submit` and `close` runs in its thread."""

    def __init__(
        self, open_home: Callable[[], Home], *, cwd: str, mode: Mode | None = None, platform: str = CHAT
    ) -> None:
        """open_home: opens the home, in the thread. cwd, mode, platform: as in `open_agent`. Close it at the end."""
        self._open_home, self._cwd, self._mode, self._platform = open_home, cwd, mode, platform
        self._home: Home | None = None
        self._agent: Agent | None = None
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="session", daemon=True)
        self._thread.start()
        self.status: SessionStatus | None = None  # None: nothing is open yet
        self.on_change: Callable[[], None] = lambda: None  # called in the thread when `status` is another
        self._link: TurnLink | None = None  # of the turn that goes on
        self._notices: tuple[str, ...] = ()  # of the agent and the floor, that are not told yet
        self.is_kept = False  # True once a session is open that may be kept
        self._fault: BaseException | None = None  # why nothing could be opened

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
        if self._agent is not None:
            self._agent.close()
        if self._home is not None:
            self._home.close()

    def submit(self, function: Callable[[], Result]) -> Future[Result]:
        """Run a function in the thread, after all that was submitted before."""
        future: Future[Result] = Future()

        def work() -> None:
            try:
                future.set_result(function())
            except BaseException as error:  # noqa: BLE001 - it is raised where the result is asked for
                future.set_exception(error)

        self._jobs.put(work)
        return future

    def close(self) -> bool:
        """Close session and home; False if work that goes on kept them open."""
        self._jobs.put(None)
        self._thread.join(CLOSE_S)
        return not self._thread.is_alive()

    # in the thread ----------------------------------------------------------------------------------------

    @property
    def agent(self) -> Agent:
        """The session that is open, with its tools. Raises what kept it from being opened."""
        if self._agent is None:
            raise self._fault or RuntimeError("open() comes first")
        return self._agent

    @property
    def session(self) -> Session:
        """The session that is open. Raises as `agent`."""
        return self.agent.session

    @property
    def home(self) -> Home:
        """The home, opened at the first use."""
        if self._home is None:
            self._home = self._open_home()
        return self._home

    def open(self, resume: str = "", *, fork: bool = False, model: str = "") -> SessionStatus:
        """Begin a session, or go on with one; the one that was open is closed. Raises as `open_agent`."""
        try:
            return self._open(resume, fork=fork, model=model)
        except BaseException as error:
            self._fault = error if self._agent is None else None
            raise

    def _open(self, resume: str, *, fork: bool, model: str) -> SessionStatus:
        from perdure.agent.agent import open_agent
        from perdure.session.chat_model import find_chat

        earlier = self._agent
        chosen = find_chat(self.home, model) if model else None  # else the one of agent.yaml
        options: dict[str, Any] = {
            "cwd": self._cwd,
            "chat": earlier.session.chat if earlier else chosen,
            "mode": earlier.gate.mode if earlier else self._mode,
            "on_ask": self._ask_permission,
            "on_question": self._ask_question,
            "platform": self._platform,
        }
        is_kept = earlier is not None and earlier.session.log.is_kept
        if earlier is not None and is_kept:  # the new one may be another place in it
            earlier.close()
        try:
            agent = open_agent(self.home, resume, fork=fork, **options)
        except PerdureError:
            if earlier is not None and is_kept:
                self._agent = open_agent(self.home, earlier.session.session, **options)
            raise
        if earlier is not None and not is_kept:
            earlier.close()
        self._agent, self.is_kept = agent, agent.session.log.is_kept
        self._notices = (*agent.notices, *self.home.floor.find_notices().values())
        return self.refresh()

    def use_model(self, model: str) -> SessionStatus:
        """Let another model answer from here on: a role, or a name at the provider of the resident."""
        from perdure.session.chat_model import find_chat

        self.agent.use_chat(find_chat(self.home, model))
        return self.refresh()

    def set_title(self, title: str) -> SessionStatus:
        """Give the session a title, instead of its first message."""
        from perdure.formats.perdure import Title

        log = self.session.log
        log.append(Title(text=title, **log.make_fields()))
        return self.refresh()

    def use_mode(self, mode: Mode) -> SessionStatus:
        """Let tools do more or less from here on."""
        self.agent.gate.mode = mode
        return self.refresh()

    def say(
        self, text: str, typed: str, link: TurnLink, *, attached: Attachments | None = None, instruction: str = ""
    ) -> Message:
        """Send a message, with the files that its typed words name, or these. Raises ModelFault.

        instruction: stands beside the message, and nobody said it.
        """
        self._link = link
        try:
            attachments = attached or self.agent.attach(typed)
            notices, self._notices = self._notices, ()
            for line in (*notices, *attachments.problems, *(f"attached {file.path}" for file in attachments.files)):
                link.tell(line)
            return self.agent.say(
                text, attachments, listener=link.listener, cancel=link.cancel, instruction=instruction
            )
        finally:
            self._link = None
            self.refresh()

    def decide_edit(self, proposal: str, *, is_approved: bool) -> str:
        """Make or reject a change that the agent proposed. Raises UsageError, FloorMissing, EditRefused."""
        from perdure.agent.self_edit import decide_edit

        return decide_edit(self.home, proposal, is_approved=is_approved, surface="chat").words

    def compact(self, focus: str, link: TurnLink) -> Boundary | None:
        """Make a summary of the middle of the session; None if nothing was left out. Raises ModelCancelled."""
        try:
            return self.session.compact(focus, listener=link.listener, cancel=link.cancel)
        finally:
            self.refresh()

    def _ask_permission(self, request: PermissionRequest) -> PermissionAnswer | None:
        from perdure.agent.permission import PermissionAnswer

        if self._link and not self._link.is_attended:
            return None
        answer = self._link.ask(request) if self._link else None
        return answer if isinstance(answer, PermissionAnswer) else PermissionAnswer("deny")

    def _ask_question(self, question: str, choices: Sequence[str]) -> str | None:
        answer = self._link.ask(ModelQuestion(question, choices)) if self._link else None
        return answer if isinstance(answer, str) else None

    def sum_cost(self) -> dict[str, SessionTotals]:
        """Return what the session cost until now, by job."""
        from perdure.session.spending import sum_by_job

        return sum_by_job(self.session.log.tree)

    def read_path(self) -> list[AnyEntry]:
        """Return the entries that lead to where the conversation goes on."""
        return self.session.log.find_path()

    def refresh(self, activity: str = "") -> SessionStatus:
        """Compute the status anew."""
        agent, session = self.agent, self.session
        size = session.measure()
        totals = self.sum_cost().values()
        is_priced = any(item.n_unpriced < item.n_model_calls for item in totals)
        self.status = SessionStatus(
            session.session,
            size.n_tokens,
            size.window_tokens,
            session.chat.name,
            size.is_high,
            sum(item.money for item in totals) if is_priced else None,
            activity,
            agent.gate.mode,
            _describe_tools(agent),
        )
        self.on_change()
        return self.status


def _describe_tools(agent: Agent) -> str:
    names = agent.session.tool_names
    if "shell" not in names:
        return "no shell" if names else "no tools"
    return "no sandbox" if agent.sandbox.problem else "sandbox"
