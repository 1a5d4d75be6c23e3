"""Sessions that the resident process holds for clients that come and go: browsers, and programs with an API.

Each session has a thread of its own, and belongs to nobody's connection: a client that leaves and comes back finds the
turn where it is, and several may look at one. What happens is told to listeners as small events; the words of a
finished message are read from its log. A session that nobody used for a while is given up, so that another program can
hold it.
"""

from __future__ import annotations

import ipaddress
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from perdure.agent.agent import NO_ATTACHMENTS
from perdure.agent.attachments import Attachments
from perdure.agent.permission import Mode, PermissionRequest
from perdure.errors import Busy, ModelCancelled, PerdureError
from perdure.formats.perdure import AnyEntry, CallEntry, Message
from perdure.home import Home
from perdure.session.log import read_start
from perdure.session.session import TurnListener
from perdure.surfaces.chat.person_question import ModelQuestion, PersonQuestion, TurnLink
from perdure.surfaces.chat.session_thread import SessionHolder
from perdure.surfaces.chat.status_bar import SessionStatus
from perdure.turn import HookReply

IDLE_S = 300.0  # a session that nobody used for so long is given up
MAX_SESSIONS = 16  # that are held at once; each has a thread, a home and its MCP servers
_OPEN_S = 90.0  # MCP servers may take 30 seconds to start
_BEGIN_S = 3.0  # until the message of a turn is on disk: recall takes one of them at most
_SWEEP_S = 15.0


class LiveEvent(NamedTuple):
    """Something that happened in a session."""

    kind: Literal["text", "change", "end"]  # a piece of the answer; anything else that a page shows; a turn ended
    text: str = ""  # the piece


Listener = Callable[[LiveEvent], None]  # called in the thread of the session; it does not wait


@dataclass(frozen=True)
class PendingQuestion:
    """A question that waits for a person."""

    question_id: str
    question: PersonQuestion

    @property
    def subject(self) -> PermissionRequest | ModelQuestion:
        """What is asked."""
        return self.question.subject


@dataclass
class LiveTurn:
    """A message and the answers to it, while they come and after."""

    is_attended: bool  # a person looks, and can be asked
    cancel: threading.Event = field(default_factory=threading.Event)
    begun: threading.Event = field(default_factory=threading.Event)  # the message is on disk
    ended: threading.Event = field(default_factory=threading.Event)
    text: str = ""  # of the answer that the model writes now; "" once it is in the log
    said: str = ""  # of all answers, as a client gets them that sees no calls
    running: CallEntry | None = None  # the call that was begun last, and has no output yet
    notes: list[str] = field(default_factory=list)  # for the person
    question: PendingQuestion | None = None
    answers: tuple[Message, ...] = ()  # at the end
    error: Exception | None = None  # at the end: why there is no answer


@dataclass(frozen=True)
class TurnRequest:
    """A message to a session."""

    text: str
    attachments: Attachments = NO_ATTACHMENTS
    instruction: str = ""  # stands beside the message, and nobody said it
    after: str = ""  # the entry after which it goes on, as a branch; "": after the newest
    is_compaction: bool = False  # make a summary of the middle instead; the text is what it should look at
    is_attended: bool = True


class LiveSession:
    """One session that is held. Any thread may call it."""

    def __init__(
        self, open_home: Callable[[], Home], publish: Callable[[str, LiveEvent], None], *, cwd: str, platform: str,
        resume: str = "",
    ) -> None:  # fmt: skip
        """Begin a session, or go on with one. publish: tells all listeners of a session. Raises as `open_agent`."""
        self._publish_event = publish
        self._lock = threading.Lock()
        self._holder = SessionHolder(open_home, cwd=cwd, platform=platform)
        self.turn: LiveTurn | None = None  # the newest
        self.last_used_s = time.monotonic()
        self.n_users = 0  # threads that are about to do something in it; of `LiveSessions`
        try:
            status = self._holder.submit(lambda: self._holder.open(resume)).result(_OPEN_S)
        except BaseException:
            self._holder.close()
            raise
        self.session = status.session

    @property
    def status(self) -> SessionStatus | None:
        """The state of the session that a person sees."""
        return self._holder.status

    @property
    def partial(self) -> str:
        """The answer that the model writes now, as far as it came; "" if it writes none."""
        return self.turn.text if self.turn is not None else ""

    @property
    def is_answering(self) -> bool:
        """True while a turn goes on."""
        return self.turn is not None and not self.turn.ended.is_set()

    @property
    def is_used(self) -> bool:
        """True while it must not be given up: a turn goes on, or a thread is about to begin one."""
        return self.n_users > 0 or self.is_answering

    def set_mode(self, mode: Mode) -> None:
        """Let tools do more or less from here on, in a turn that goes on, too."""
        self._holder.agent.gate.mode = mode
        self.last_used_s = time.monotonic()
        if not self.is_answering:
            self._holder.submit(self._holder.refresh).result(_OPEN_S)
        self._publish("change")

    def use_model(self, model: str) -> bool:
        """Let another model answer from here on; False while a turn goes on. Raises DefinitionFault, ModelMissing."""
        return self._change(lambda: self._holder.use_model(model))

    def set_title(self, title: str) -> bool:
        """Give the session a title; False while a turn goes on."""
        return self._change(lambda: self._holder.set_title(title))

    def _change(self, work: Callable[[], Any]) -> bool:
        with self._lock:
            if self.is_answering:
                return False
            self._holder.submit(work).result(_OPEN_S)
            self.last_used_s = time.monotonic()
        self._publish("change")
        return True

    def start_turn(self, request: TurnRequest, listener: Listener | None = None) -> LiveTurn | None:
        """Send a message; return when it is on disk. None, and nothing is sent, while another turn goes on.

        A turn that was cancelled ends in a moment, and is waited for. listener: is told of this turn alone.
        """
        if self.turn is not None and self.turn.cancel.is_set():
            self.turn.ended.wait(_BEGIN_S)
        with self._lock:
            if self.is_answering:
                return None
            turn = self.turn = LiveTurn(request.is_attended)
            self.last_used_s = time.monotonic()
        self._holder.submit(lambda: self._run(turn, request, listener))
        turn.begun.wait(_BEGIN_S)
        return turn

    def answer(self, question_id: str, value: Any) -> bool:
        """Answer a question; False if it does not wait any more."""
        with self._lock:
            pending = self.turn.question if self.turn else None
            if self.turn is None or pending is None or pending.question_id != question_id:
                return False
            self.turn.question = None
        pending.question.answer(value)
        return True

    @property
    def mode(self) -> Mode:
        """What tools may do now."""
        return self._holder.agent.gate.mode

    def wait_for_end(self, limit_s: float = _BEGIN_S) -> None:
        """Wait until the turn has ended, or a limit of time is over."""
        if self.turn is not None:
            self.turn.ended.wait(limit_s)

    def stop(self) -> None:
        """Cancel the turn that goes on; it is kept as far as it came."""
        if self.turn is not None:
            self.turn.cancel.set()

    def close(self) -> bool:
        """Cancel the turn, keep what came of it, and give the session up; False if work that goes on kept it open."""
        self.stop()
        return self._holder.close()

    # in the thread of the session ---------------------------------------------------------------------------

    def _run(self, turn: LiveTurn, request: TurnRequest, listener: Listener | None) -> None:
        agent = self._holder.agent
        own_mode = agent.gate.mode
        log = agent.session.log
        earlier_ids = {entry.id for entry in log.tree}

        def publish(kind: Literal["text", "change", "end"], piece: str = "") -> None:
            if listener is not None:
                listener(LiveEvent(kind, piece))
            self._publish(kind, piece)

        try:
            if not request.is_attended:
                agent.gate.mode = agent.definition.mode
            if (
                request.after
                and log.tree.get(request.after) is not None
                and not _is_newest(log.find_path(), request.after)
            ):
                log.move_leaf(request.after)
            link = TurnLink(
                self._make_listener(turn, publish), turn.cancel, lambda subject: self._ask(turn, subject),
                lambda words: self._note(turn, words), is_attended=request.is_attended,
            )  # fmt: skip
            if request.is_compaction:
                turn.begun.set()
                if self._holder.compact(request.text, link) is None:
                    self._note(turn, "Nothing was left out: the session is as it was.")
            else:
                self._holder.say(request.text, "", link, attached=request.attachments, instruction=request.instruction)
        except PerdureError as error:
            turn.error = error
            if not isinstance(error, ModelCancelled):
                turn.notes.append(str(error))
        finally:
            agent.gate.mode = own_mode if not request.is_attended else agent.gate.mode
            turn.answers = tuple(
                entry for entry in log.tree
                if entry.id not in earlier_ids and isinstance(entry, Message) and entry.role == "assistant"
            )  # fmt: skip
            turn.text, turn.running = "", None
            self.last_used_s = time.monotonic()
            turn.ended.set()
            turn.begun.set()
            publish("end")

    def _make_listener(self, turn: LiveTurn, publish: Callable[..., None]) -> TurnListener:
        def take_recall(_: HookReply) -> None:
            turn.begun.set()
            publish("change")

        def take_text(piece: str) -> None:
            is_next_answer = turn.said and not turn.text  # after tools
            piece_said = f"\n\n{piece}" if is_next_answer else piece
            turn.text += piece
            turn.said += piece_said
            publish("text", piece_said)

        def take_call(call: CallEntry) -> None:
            turn.text, turn.running = "", call
            publish("change")

        def take_output(_: Message) -> None:
            turn.text, turn.running = "", None
            publish("change")

        return TurnListener(
            on_text=take_text, on_recall=take_recall, on_call=take_call, on_output=take_output,
            on_compact=lambda words: self._note(turn, words),
        )  # fmt: skip

    def _note(self, turn: LiveTurn, words: str) -> None:
        turn.notes.append(words)
        self._publish("change")

    def _ask(self, turn: LiveTurn, subject: PermissionRequest | ModelQuestion) -> Any:
        """Wait for the answer of a person; None if nobody is there, or the turn is cancelled."""
        if not turn.is_attended:
            return None
        turn.question = PendingQuestion(secrets.token_hex(8), PersonQuestion(subject))
        pending = turn.question
        self._publish("change")
        try:
            return pending.question.wait(turn.cancel)
        finally:
            turn.question = None
            self._publish("change")

    def _publish(self, kind: Literal["text", "change", "end"], piece: str = "") -> None:
        self._publish_event(self.session, LiveEvent(kind, piece))


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def is_folder(path: str) -> bool:
    """Return True if a path, from the root on, leads to a folder of this machine."""
    try:
        return Path(path).is_absolute() and Path(path).is_dir()
    except (OSError, ValueError):  # no disk takes such a name
        return False


def _is_newest(path: Sequence[AnyEntry], entry_id: str) -> bool:
    """Return True if an entry stands on a path, and nobody said anything after it."""
    places = [n for n, entry in enumerate(path) if entry.id == entry_id]
    return bool(places) and not any(isinstance(entry, Message) for entry in path[places[0] + 1 :])


class LiveSessions:
    """The sessions that are held, by id, and who listens to them. Any thread may call it."""

    def __init__(
        self, open_home: Callable[[], Home], user: str, *, on_turn_end: Callable[[], None], allows_remote: bool = False,
        idle_s: float = IDLE_S, max_sessions: int = MAX_SESSIONS,
    ) -> None:  # fmt: skip
        """user: whose sessions they are. on_turn_end: new entries are in the archive. allows_remote: other machines may
        talk with the agent. Close it.
        """
        self._open_home, self._user, self._allows_remote = open_home, user, allows_remote
        self._on_turn_end, self._idle_s, self._max_sessions = on_turn_end, idle_s, max_sessions
        self._sessions: dict[str, LiveSession] = {}
        self._listeners: dict[str, set[Listener]] = {}
        self._lock = threading.Lock()
        self._open_lock = threading.Lock()  # one session is opened, found for use, or given up at a time
        self._closed = threading.Event()
        threading.Thread(target=self._sweep, name="perdure-live-sessions", daemon=True).start()

    def find_refusal(self, user: str, address: str) -> str:
        """Say why a client may not talk with the agent; "" if it may. address: of the client, as the server sees it.

        The tools of the agent act with the rights of this process: a stolen secret of another machine must be no shell.
        """
        if user != self._user:
            return "The agent acts with the rights of this home's own user, and talks with nobody else."
        if not (self._allows_remote or _is_loopback(address)):
            return (
                "The agent acts on the machine of this home, and talks only with programs there. "
                "`remote_agent = true` under [server] of its config.toml lets your other machines in."
            )
        return ""

    def begin(self, platform: str, *, cwd: str = "") -> AbstractContextManager[LiveSession]:
        """Begin a session, for a block. platform: a name of `floor/platforms.py`. cwd: the folder to work in; "" for
        none.

        It is held on after the block, until nobody used it for `idle_s`. Raises as `open_agent`, and Busy.
        """
        return self._use(lambda: self._open(platform, cwd=cwd))

    def resume(self, home: Home, session: str, platform: str) -> AbstractContextManager[LiveSession]:
        """Go on with a session, for a block, as `begin` does. Raises as `open_agent`, and Busy."""

        def find_or_open() -> LiveSession:
            if (live := self.find(session)) is not None:
                return live
            cwd = read_start(home, session).cwd
            return self._open(platform, cwd=cwd if cwd and is_folder(cwd) else "", resume=session)

        return self._use(find_or_open)

    @contextmanager
    def _use(self, find_or_open: Callable[[], LiveSession]) -> Iterator[LiveSession]:
        """Keep a session from being given up during a block: what the block starts in it would never end."""
        with self._open_lock:
            live = find_or_open()
            with self._lock:
                live.n_users += 1
        try:
            yield live
        finally:
            live.last_used_s = time.monotonic()
            with self._lock:
                live.n_users -= 1

    def find(self, session: str) -> LiveSession | None:
        """Return a session that is held; None if it is not."""
        with self._lock:
            return self._sessions.get(session)

    def _open(self, platform: str, *, cwd: str, resume: str = "") -> LiveSession:
        self._make_room()
        live = LiveSession(self._open_home, self._publish, cwd=cwd, platform=platform, resume=resume)
        with self._lock:
            self._sessions[live.session] = live
        return live

    def _make_room(self) -> None:
        with self._lock:
            idle = sorted(
                (live for live in self._sessions.values() if not live.is_used), key=lambda live: live.last_used_s
            )
            if len(self._sessions) < self._max_sessions:
                return
        if not idle:
            raise Busy(f"{self._max_sessions} sessions answer already")
        self._give_up(idle[0])

    def _give_up(self, live: LiveSession) -> None:
        with self._lock:
            self._sessions.pop(live.session, None)
        live.close()

    # listeners --------------------------------------------------------------------------------------------

    def add_listener(self, session: str, listener: Listener) -> None:
        """Tell a listener of all that happens in a session from now on, whether it is held now or later."""
        with self._lock:
            self._listeners.setdefault(session, set()).add(listener)

    def remove_listener(self, session: str, listener: Listener) -> None:
        """Tell a listener no more."""
        with self._lock:
            listeners = self._listeners.get(session, set())
            listeners.discard(listener)
            if not listeners:
                self._listeners.pop(session, None)

    @property
    def is_closed(self) -> bool:
        """True once no session is held any more."""
        return self._closed.is_set()

    @property
    def n_listeners(self) -> int:
        """How many listen."""
        with self._lock:
            return sum(map(len, self._listeners.values()))

    def _publish(self, session: str, event: LiveEvent) -> None:
        with self._lock:
            listeners = list(self._listeners.get(session, ()))
        for listener in listeners:
            listener(event)
        if event.kind == "end":
            self._on_turn_end()

    # the end ----------------------------------------------------------------------------------------------

    def _sweep(self) -> None:
        while not self._closed.wait(min(_SWEEP_S, self._idle_s)):
            self.give_up_idle(time.monotonic())

    def give_up_idle(self, now_s: float) -> None:
        """Give up the sessions that nobody used for `idle_s`."""
        with self._open_lock:
            with self._lock:
                idle = [
                    live for live in self._sessions.values()
                    if not live.is_used and now_s - live.last_used_s >= self._idle_s
                ]  # fmt: skip
            for live in idle:
                self._give_up(live)

    def close(self) -> None:
        """Cancel all turns, keep what came of them, and give all sessions up."""
        self._closed.set()
        with self._lock:
            sessions = list(self._sessions.values())
            listeners = [listener for listeners in self._listeners.values() for listener in listeners]
        for listener in listeners:
            listener(LiveEvent("end"))
        for live in sessions:
            live.stop()
        for live in sessions:
            self._give_up(live)
