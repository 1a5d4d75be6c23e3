"""What a client gets to hear when something happens in it: a floor where it begins, and recall beside a message.

Never raises, and is never late: an answer that would reach nobody any more is dropped before it is recorded. What is
injected is in the journal before it is given, without the words, so that no process has to remember it. Importing this
costs little; what a recall needs is loaded by the first one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure.capture import alert, events, log
from perdure.capture.openings import is_command
from perdure.capture.wire import Event
from perdure.errors import IndexFault

if TYPE_CHECKING:
    from perdure.archive.injected import Held
    from perdure.config import Config
    from perdure.floor.layers import Layers
    from perdure.home import Home
    from perdure.types import Cue, Recalled

MAX_CHARS = 9_000  # of a block, as JavaScript counts them: Claude Code and Codex cut what a hook says at 10,000
REMINDER = "[perdure] Is something here worth keeping? `perdure remember TEXT` stores it."
HELPER_SHARE = 0.4  # of the time that is left, that a helper model may take to plan
MARGIN_MS = 60  # of its limit an answer leaves for being recorded (an fsync) and delivered
_EMPTIED = ("compact", "clear")
_COPIED = "fork"
_RECORDING = threading.Lock()  # a start and a prompt may be answered side by side, and only one gives the floor


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back to the client."""

    text: str = ""  # the block to inject
    notice: str = ""  # one line for the person


NOTHING = Answer()


class Slot:
    """The time that one answer has. Of giving it and giving up on it, only one happens."""

    def __init__(self, limit_ms: int) -> None:
        """The time begins now."""
        self._ends_s = time.monotonic() + limit_ms / 1000
        self._lock = threading.Lock()
        self._taken = False

    @property
    def left_s(self) -> float:
        """Seconds until nobody waits any more, 0 when that is so."""
        return max(0.0, self._ends_s - time.monotonic())

    def claim(self) -> bool:
        """Whether the answer can still be given; then it counts as given."""
        return self.left_s > MARGIN_MS / 1000 and self._take()

    def give_up(self) -> bool:
        """Whether the answer was not given; then it never will be."""
        return self._take()

    def _take(self) -> bool:
        with self._lock:
            free, self._taken = not self._taken, True
            return free


def answer(
    home: Home,
    event: Event,
    *,
    limit_ms: int,
    mode: str | None = None,
    slot: Slot | None = None,
    now: datetime | None = None,
) -> Answer:
    """What a client is to be told about an event. Never raises: a failure is an answer without text, and in the log.

    mode: "keyword" loads no model. slot: the time that runs already; otherwise it begins now.
    """
    slot = slot or Slot(limit_ms)
    call = _Call(home, event, mode, slot, now or datetime.now().astimezone())
    try:
        said = call.answer()
        _recovered(home.path)
    except Exception as error:  # noqa: BLE001 - the promise of this module: whatever fails, the prompt goes on
        said = failed(home.path, event, error)
        call.outcome = "failed"
    call.log()
    return said


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of what was recalled."""

    text: str
    nonce: str
    cues: tuple[Cue, ...]  # in it


@dataclass(frozen=True, slots=True)
class _Given:
    """A block that is about to be given. text: "" where there is nothing to give, and that is to be known."""

    text: str
    data: dict[str, Any]  # what the journal says of it: never its words


@dataclass
class _Call:
    """One answer while it is being made."""

    home: Home
    event: Event
    mode: str | None
    slot: Slot
    now: datetime
    outcome: str = "nothing"
    started_s: float = field(default_factory=time.perf_counter)
    facts: dict[str, Any] = field(default_factory=dict)  # for the log
    told: dict[str, str] = field(default_factory=dict)  # what it tells the person: name -> where it stands
    tells_alert: bool = False

    def answer(self) -> Answer:
        if self.event.kind not in ("prompt", "start", "after-compact"):
            return NOTHING
        if reason := self._skipped():
            self.outcome, self.facts["why"] = "skipped", reason
            return NOTHING
        given, notices = self._prompt() if self.event.kind == "prompt" else self._start()
        if (given or any(notices)) and not self.slot.claim():
            self.outcome = "late"
            return NOTHING
        self._count_as_told()
        text = "\n\n".join(block for block in map(self._recorded, given) if block)
        return Answer(text, " ".join(filter(None, notices)))

    def _count_as_told(self) -> None:
        """Note what the person hears now, once it is sure that they do."""
        from perdure.access import told

        told.mark(self.home.path, self.home.user, self.told)
        if self.tells_alert:
            alert.mark_told(self.home.path)

    def _untold(self, found: Mapping[str, str]) -> list[str]:
        """The names among these that nobody was told of; this answer is to tell them. found: name -> where it is."""
        from perdure.access import told

        fresh = told.untold(self.home.path, self.home.user, found)
        self.told |= {name: found[name] for name in fresh}
        return fresh

    def _skipped(self) -> str:
        """Why nothing is put into this session, and nothing noted of it, which would be a record; or ""."""
        from perdure.types import Origin

        event = self.event
        if event.kind == "prompt" and (reason := skipped(event, self.home.config)):
            return reason
        session = event.session or "unnamed"
        return self.home.refusal(Origin(event.client, session, session, cwd=event.cwd or None)) or ""

    def _recorded(self, given: _Given) -> str:
        """A block, once it is in the journal; "" for a floor that another process or thread gave meanwhile."""
        from perdure.archive import injected

        with _RECORDING:
            if given.data.get("kind") == injected.FLOOR and self._held().floor:
                return ""
            self.home.journal().append(injected.TYPE, given.data, now=self.now)
        self.outcome = "injected" if given.text else self.outcome
        return given.text

    def _held(self) -> Held:
        from perdure.archive import injected

        return injected.held(self.home.journal(), self.event.client, self.event.session, self.event.agent)

    # the floor --------------------------------------------------------------------------------------------

    def _start(self) -> tuple[list[_Given], list[str]]:
        """A session begins or goes on: its floor; where its context was emptied, nothing of it is held any more."""
        from perdure.archive import injected

        cause = "compact" if self.event.kind == "after-compact" else self.event.cause
        if cause in _EMPTIED:
            self.home.journal().append(injected.RESET, {**_who(self.event), "cause": cause}, now=self.now)
            self.outcome = "reset"
        return self._floor(self._held(), MAX_CHARS)

    def _floor(self, held: Held, room: int) -> tuple[list[_Given], list[str]]:
        """What is at hand in every session, once from one emptying of its context to the next; and what to tell.

        An empty one counts as given: what is written meanwhile is for the next session. In a copy of a session the
        client replays what that one held.
        """
        event, live = self.event, self.home.config.live
        if not live.floor or held.floor or (event.agent and not live.subagents):
            return [], []
        if event.cause == _COPIED:
            return [_Given("", _floor_data(event, "", ""))], []
        from perdure.access import fence
        from perdure.floor import fitting

        layers, nonce = self.home.layers(cwd=event.cwd or None, platform=event.client, now=self.now), fence.new_nonce()
        here = self.home.here(cwd=event.cwd or None, now=self.now, lead="As of")
        text = fitting.block(layers.layers, here, nonce, room if events.is_cut(event.client) else None, size=js_length)
        self.facts["n_floor_chars"] = len(text)
        return [_Given(text, _floor_data(event, nonce if text else "", text))], self._floor_notices(layers)

    def _floor_notices(self, layers: Layers) -> list[str]:
        """What the person must know of a floor: first what was left out of it, then what cannot be filled in."""
        from perdure.access import told

        suspects = {one.digest: one for one in layers.suspects}
        left_out = self._untold({digest: one.where for digest, one in suspects.items()})
        unfilled = self._untold(dict.fromkeys(layers.unfilled, ""))
        said = [f"Perdure: {'; '.join(layers.unfilled[name] for name in unfilled)}."] if unfilled else []
        return [*told.lines([suspects[digest].alert for digest in left_out]), *said]

    # recall -----------------------------------------------------------------------------------------------

    def _prompt(self) -> tuple[list[_Given], list[str]]:
        """What matters for the message, behind the floor where that was missed at the start of the session."""
        held = self._held()
        first, notices = self._floor(held, MAX_CHARS // 2)
        taken = js_length(first[0].text) if first and events.is_cut(self.event.client) else 0
        found, more = self._recall(held, MAX_CHARS - taken) if self.home.config.live.recall else ([], [])
        is_own = self.home.user == self.home.config.user  # the home's state is no affair of who else uses it
        incident = alert.untold(self.home.path) if is_own else ""
        self.tells_alert = bool(incident)
        return [*first, *found], [incident, *notices, *more]

    def _recall(self, held: Held, room: int) -> tuple[list[_Given], list[str]]:
        reminder, recalled = self._reminder(), self._recalled(held)
        if "index" in recalled.degraded and (self.home.path / "index.db").is_symlink():
            raise IndexFault(recalled.silent)  # with none at all yet, there is nothing to recall
        given = self._given(recalled, reminder, room)
        if not given:
            self.outcome, self.facts["why"] = "silent", recalled.silent
        return given, self._held_back(recalled)

    def _held_back(self, recalled: Recalled) -> list[str]:
        """What a person must know of cues that were left out, the first time that their words were met."""
        if not recalled.held_back:
            return []
        from perdure.access import told

        names = {held.digest: name for name, held in recalled.held_back.items()}
        rules = {held.digest: held.rule for held in recalled.held_back.values()}
        fresh = self._untold(names)
        return told.lines([f"{names[one]} was left out ({one[: told.DIGEST_CHARS]}): {rules[one]}" for one in fresh])

    def _reminder(self) -> str:
        """What is said at one in so many of a person's messages, the first among them; "" at the others."""
        from perdure.archive import injected
        from perdure.formats.speech import is_machine

        every, event = self.home.config.live.remind_every, self.event
        if not every or event.agent or not event.is_human or is_machine(event.prompt):
            return ""
        n_asked = injected.n_asked(self.home.journal(), event.client, event.session)
        self.home.journal().append(injected.ASKED, _who(event), now=self.now)
        return "" if n_asked % every else REMINDER

    def _recalled(self, held: Held) -> Recalled:
        from perdure.types import Live

        already = held.turns if self.home.config.live.repeat == "session" else frozenset()
        recalled = self.home.recall(
            self.event.prompt, now=self.now, cwd=self.event.cwd or None,
            session=Live(self.event.session, held.since_at), already=already, mode=self.mode,
            helper_s=self.slot.left_s * HELPER_SHARE,
        )  # fmt: skip
        self.facts |= {"degraded": list(recalled.degraded), "timings_ms": _rounded(recalled.timings_ms)}
        return recalled

    def _given(self, recalled: Recalled, reminder: str, room: int) -> list[_Given]:
        """The block of what was recalled; none when there is nothing to say."""
        from perdure.access import fence

        nonce = fence.new_nonce()
        text, cues = block(recalled.cues, nonce, reminder, room=room) if recalled.cues or reminder else ("", ())
        if not text:
            return []
        data = injection(self.event, Block(text, nonce, cues), recalled, self._took_ms())
        self.facts |= {"n_cues": len(cues), "n_tokens": data["n_tokens"]}
        return [_Given(text, data)]

    def _took_ms(self) -> float:
        return round((time.perf_counter() - self.started_s) * 1000, 1)

    def log(self) -> None:
        """A line about this answer, without a word of what was asked."""
        event = self.event
        log.note(
            self.home.path, "answered", user=self.home.user, client=event.client, kind=event.kind,
            session=event.session, outcome=self.outcome, took_ms=self._took_ms(), **self.facts,
        )  # fmt: skip


# decisions, all pure ------------------------------------------------------------------------------------------


def skipped(event: Event, config: Config) -> str:
    """Why nothing is recalled for a prompt, or ""."""
    from perdure.formats.speech import is_machine

    if not (config.live.recall or config.live.floor):
        return "switched off"
    if event.agent and not config.live.subagents:
        return "sub-agent"
    if not event.agent and not config.live.machine_turns and (not event.is_human or is_machine(event.prompt)):
        return "machine turn"
    if is_command(event.prompt):
        return "slash command"
    return "" if event.prompt.strip() else "empty"


def block(cues: Sequence[Cue], nonce: str, reminder: str = "", *, room: int = MAX_CHARS) -> tuple[str, tuple[Cue, ...]]:
    """(the fenced block, the cues in it): as many as the limits of characters and tokens allow, best first; and the
    reminder behind them.
    """
    from perdure.access import fence
    from perdure.recall.pack import render
    from perdure.recall.tuning import DEFAULT
    from perdure.text import tokens

    last = [reminder] if reminder else []
    for n_kept in range(len(cues), 0 if not last else -1, -1):
        text = fence.fenced([*map(render, cues[:n_kept]), *last], nonce)
        if js_length(text) < room and tokens(text) <= DEFAULT.max_tokens:
            return text, tuple(cues[:n_kept])
    return "", ()


def injection(event: Event, given: Block, recalled: Recalled, took_ms: float) -> dict[str, Any]:
    """What the journal says of a block that goes into a session: what it is made of, never its words."""
    from perdure.access import fence
    from perdure.text import tokens

    return {
        **_who(event), "nonce": given.nonce, "digest": fence.digest(given.text),
        "turns": [cue.turn_id for cue in given.cues], "n_chars": len(given.text), "n_tokens": tokens(given.text),
        "intent": recalled.plan.intent, "degraded": list(recalled.degraded), "took_ms": round(took_ms, 1),
        "timings_ms": _rounded(recalled.timings_ms), "cues": list(map(_reason, given.cues)),
    }  # fmt: skip


def js_length(text: str) -> int:
    """The length of a text as JavaScript counts it, in which an emoji is two.

    >>> js_length("a😀")
    3
    """
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _who(event: Event) -> dict[str, str]:
    return {"runtime": event.client, "session": event.session, "agent": event.agent}


def _reason(cue: Cue) -> dict[str, Any]:
    """Why a turn was chosen, in numbers: words of a message would be a text outside the archive's runs."""
    return {"turn": cue.turn_id, "score": round(cue.score, 4), "legs": _rounded(cue.legs), "n_tokens": cue.n_tokens}


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(float(value), 3) for name, value in values.items()}


def _floor_data(event: Event, nonce: str, text: str) -> dict[str, Any]:
    """What the journal says of a floor. Without a code: there was none to give, or the session holds one already."""
    from perdure.access import fence
    from perdure.archive import injected

    digest = fence.digest(text) if text else ""
    return {**_who(event), "kind": injected.FLOOR, "nonce": nonce, "digest": digest, "turns": [], "n_chars": len(text)}


# failures -----------------------------------------------------------------------------------------------------


def failed(home: Path, event: Event, error: BaseException) -> Answer:
    """Record a failure; the first of an incident is said to the person in one line."""
    code = str(getattr(error, "code", "")) or type(error).__name__
    log.note(home, "failed", client=event.client, kind=event.kind, code=code, at_line=where(error))
    try:
        _marker(home).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _marker(home).open("x") as file:
            file.write(code)
    except FileExistsError:
        return NOTHING
    except OSError:  # nothing can be written, not even that it was said
        pass
    return Answer("", f"Perdure could not recall ({code}); your message went on without it. `perdure doctor` says why.")


def failing(home: Path) -> str:
    """The code of the failure that has not passed yet, or ""."""
    try:
        return _marker(home).read_text()
    except OSError:
        return ""


def _recovered(home: Path) -> None:
    if failing(home):
        _marker(home).unlink(missing_ok=True)


def _marker(home: Path) -> Path:
    return home / "run" / "failing"


def where(error: BaseException) -> str:
    """File and line where it was raised."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return f"{Path(at.tb_frame.f_code.co_filename).name}:{at.tb_lineno}" if at else ""


# without a resident home --------------------------------------------------------------------------------------


def answer_alone(home_path: Path, event: Event, *, limit_ms: int) -> dict[str, str]:
    """The same answer from this process, by words alone, for when no resident home is there. Never makes a home.

    Returns within the limit, in which everything is loaded and opened; what is not done by then is never given.
    """
    slot = Slot(limit_ms)
    if event.kind not in ("prompt", "start", "after-compact"):
        return _said(NOTHING)
    found: list[Answer] = []
    worker = threading.Thread(target=_alone, args=(home_path, event, limit_ms, slot, found), daemon=True)
    worker.start()
    worker.join(slot.left_s)
    if not found and slot.give_up():
        log.note(home_path, "late", client=event.client, kind=event.kind, limit_ms=limit_ms)
    return _said(found[0] if found else NOTHING)


def _said(answer_: Answer) -> dict[str, str]:
    return {"text": answer_.text, "notice": answer_.notice}


def _alone(home_path: Path, event: Event, limit_ms: int, slot: Slot, found: list[Answer]) -> None:
    try:
        from perdure.errors import HomeMissing
        from perdure.home import open_home
    except Exception as error:  # noqa: BLE001 - a broken installation must not break the prompt either
        found.append(failed(home_path, event, error) if home_path.is_dir() else NOTHING)
        return
    try:
        with open_home(home_path, create=False, read_only=True) as home:
            found.append(answer(home, event, limit_ms=limit_ms, mode="keyword", slot=slot))
    except HomeMissing:
        found.append(NOTHING)
    except Exception as error:  # noqa: BLE001 - the same promise for what cannot be opened
        found.append(failed(home_path, event, error))
