"""The home and the session of a chat, in a thread of their own, so that the terminal answers a key at any moment.

Every function that is given to `submit` runs there, one after the other. What the terminal shows of the session comes
over as values: `status`, and the events of a turn.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from perdure.errors import PerdureError
from perdure.surfaces.chat.status_bar import SessionStatus

if TYPE_CHECKING:
    from perdure.formats.perdure import AnyEntry, Boundary, Message
    from perdure.home import Home
    from perdure.session.calls import Tool
    from perdure.session.session import Session, TurnListener

Result = TypeVar("Result")
CLOSE_S = 5.0  # leaving waits so long for work that goes on; what was said is on disk before

PLAN_INSTRUCTION = (
    "[The person is planning. Answer with a plan: steps, open questions, risks. Change nothing, and call no tool that "
    "changes something.]"
)


class SessionHolder:
    """Holds one session after the other. Every method but `submit` and `close` runs in its thread."""

    def __init__(self, open_home: Callable[[], Home], *, cwd: str, tools: Sequence[Tool] = ()) -> None:
        """open_home: opens the home, in the thread. Close it at the end."""
        self._open_home, self._cwd, self._tools = open_home, cwd, tools
        self._home: Home | None = None
        self._session: Session | None = None
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="session", daemon=True)
        self._thread.start()
        self.status: SessionStatus | None = None  # None: nothing is open yet
        self.on_change: Callable[[], None] = lambda: None  # called in the thread when `status` is another
        self.is_planning = False
        self.is_kept = False  # True once a session is open that may be kept
        self._fault: BaseException | None = None  # why nothing could be opened

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
        if self._session is not None:
            self._session.close()
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
    def session(self) -> Session:
        """The session that is open. Raises what kept it from being opened."""
        if self._session is None:
            raise self._fault or RuntimeError("open() comes first")
        return self._session

    @property
    def home(self) -> Home:
        """The home, opened at the first use."""
        if self._home is None:
            self._home = self._open_home()
        return self._home

    def open(self, resume: str = "", *, fork: bool = False, model: str = "") -> SessionStatus:
        """Begin a session, or go on with one; the one that was open is closed. Raises as `open_session`."""
        try:
            return self._open(resume, fork=fork, model=model)
        except BaseException as error:
            self._fault = error if self._session is None else None
            raise

    def _open(self, resume: str, *, fork: bool, model: str) -> SessionStatus:
        from perdure.floor.platforms import CHAT
        from perdure.session.session import find_chat, open_session

        earlier = self._session
        chat = earlier.chat if earlier else find_chat(self.home, model)
        options: dict[str, Any] = {"cwd": self._cwd, "chat": chat, "tools": self._tools, "platform": CHAT}
        if earlier is not None and earlier.log.is_kept:  # the new one may be another place in it
            earlier.close()
        try:
            session = open_session(self.home, resume, fork=fork, **options)
        except PerdureError:
            if earlier is not None and earlier.log.is_kept:
                self._session = open_session(self.home, earlier.session, **options)
            raise
        if earlier is not None and not earlier.log.is_kept:
            earlier.close()
        self._session, self.is_kept = session, session.log.is_kept
        return self.refresh()

    def use_model(self, model: str) -> SessionStatus:
        """Let another model answer from here on: a role, or a name at the provider of the resident."""
        from perdure.session.session import find_chat

        self.session.use_chat(find_chat(self.home, model))
        return self.refresh()

    def say(self, text: str, listener: TurnListener, cancel: threading.Event) -> Message:
        """Send a message. Raises ModelFault."""
        try:
            instruction = PLAN_INSTRUCTION if self.is_planning else ""
            return self.session.say(text, listener=listener, cancel=cancel, instruction=instruction)
        finally:
            self.refresh()

    def compact(self, focus: str, listener: TurnListener, cancel: threading.Event) -> Boundary | None:
        """Make a summary of the middle of the session; None if nothing was left out. Raises ModelCancelled."""
        try:
            return self.session.compact(focus, listener=listener, cancel=cancel)
        finally:
            self.refresh()

    def list_notices(self) -> list[str]:
        """Return what waits for the person at the start: proposed changes, and changed files of the floor."""
        return list(self.home.floor.find_notices().values())

    def read_path(self) -> list[AnyEntry]:
        """Return the entries that lead to where the conversation goes on."""
        return self.session.log.find_path()

    def refresh(self, activity: str = "") -> SessionStatus:
        """Compute the status anew."""
        from perdure.session.spending import sum_spending

        session = self.session
        size = session.measure()
        self.status = SessionStatus(
            session.session,
            size.n_tokens,
            size.window_tokens,
            session.chat.name,
            size.is_high,
            sum_spending(session.log.find_path()).money,
            activity,
            self.is_planning,
        )
        self.on_change()
        return self.status

    def set_planning(self, *, is_planning: bool) -> None:
        """Ask for plans alone from here on, or for everything again."""
        self.is_planning = is_planning
        if self.status:
            self.status = replace(self.status, is_planning=is_planning)
