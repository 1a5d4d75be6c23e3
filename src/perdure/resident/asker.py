"""The threads that answer: each has a home object of its own that only reads, so that no capture makes it wait."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

import perdure
from perdure import live
from perdure.capture.wire import Event
from perdure.errors import PerdureError, UsageError
from perdure.home import Home
from perdure.resident.health import Vitals

_WARM = "which words would warm a model"


@dataclass
class Question:
    """One request that needs the home, and the time it has."""

    request: dict[str, Any]
    slot: live.Slot
    answer: Future[dict[str, Any]] = field(default_factory=Future)


class Asker:
    """A queue and the threads that work it off."""

    def __init__(self, make: Callable[[], Home], vitals: Vitals, *, prove_s: float) -> None:
        """make: a home object for a thread. prove_s: after so long without a question, a search shows that it works."""
        self._make = make
        self._vitals = vitals
        self._prove_s = prove_s
        self._is_warm = threading.Event()
        self._waiting: queue.Queue[Question | None] = queue.Queue()  # None: look whether to stop

    @property
    def n_waiting(self) -> int:
        """Questions that no thread has taken yet."""
        return self._waiting.qsize()

    @property
    def is_warm(self) -> bool:
        """Whether the model is loaded; until then answers come from words alone."""
        return self._is_warm.is_set()

    def ask(self, question: Question) -> None:
        """Queue a question; its future holds the answer."""
        self._waiting.put(question)

    def wake(self) -> None:
        """Have one thread look whether it is to stop."""
        self._waiting.put(None)

    def run(self, stopped: threading.Event) -> None:
        """Answer, until stopped. What nobody waits for any more is passed over."""
        with self._make() as home:
            while not stopped.is_set():
                try:
                    question = self._waiting.get(timeout=self._prove_s)
                except queue.Empty:
                    self._prove(home)
                    continue
                if question is not None and question.slot.left_s > 0:
                    self._settle(home, question)

    def warm(self, stopped: threading.Event) -> None:  # noqa: ARG002 - a loop like the others, of one round
        """Load the model; until then answers come from words alone, so that nobody waits for it."""
        try:
            with self._make() as home:
                home.recall(_WARM)
                home.floor.suspicious(_WARM)
        except PerdureError as error:
            self._vitals.trouble["read"] = error.code
        finally:
            self._is_warm.set()

    def _prove(self, home: Home) -> None:
        """A real search."""
        try:
            found = home.search(_WARM, limit=1, mode="keyword")
        except (PerdureError, OSError) as error:
            self._vitals.trouble["read"] = getattr(error, "code", type(error).__name__)
            return
        if "index" in found.degraded:
            self._vitals.trouble["read"] = "no index"
        else:
            self._vitals.prove("read")

    def _settle(self, home: Home, question: Question) -> None:
        try:
            answer = _answered(home, question, is_warm=self.is_warm)
            self._vitals.prove("read")
        except PerdureError as error:
            answer = {"error": {"code": error.code, "message": str(error)}}
        except Exception as error:  # noqa: BLE001 - one bad request must not end the thread that all others need
            answer = {"error": {"code": type(error).__name__, "message": "see run/log.jsonl"}}
            live.failed(home.path, Event("resident", "prompt", ""), error)
        question.answer.set_result(answer)


def _answered(home: Home, question: Question, *, is_warm: bool) -> dict[str, Any]:
    """The answer to one request. Raises UsageError for one that means nothing."""
    request, slot, mode = question.request, question.slot, None if is_warm else "keyword"
    if request.get("op") == "event":
        event = _event(request.get("event"))
        said = live.answer(home, event, limit_ms=int(slot.left_s * 1000), mode=mode, slot=slot)
        return {"text": said.text, "notice": said.notice}
    message = request.get("message")
    if not isinstance(message, str):
        raise UsageError("a recall needs a message")
    if request.get("user", home.user) != home.user:
        raise UsageError(f"this home is served for {home.user}")
    how: dict[str, Any] = {"mode": mode, "now": _moment(request.get("now"))}
    how |= {name: request[name] for name in ("cwd", "all_projects", "mode", "explain") if name in request}
    recalled = home.recall(message, **how)
    found: dict[str, Any] = msgspec.to_builtins(recalled, str_keys=True)
    return {**found, "version": perdure.__version__, "is_warm": is_warm}


def _moment(said: object) -> datetime | None:
    """The instant of a request; None where it names none. Raises UsageError."""
    try:
        return None if said is None else msgspec.convert(said, datetime)
    except msgspec.ValidationError as error:
        raise UsageError(f"no instant: {error}") from error


def _event(fields: object) -> Event:
    """The event of a request. Raises UsageError."""
    try:
        return msgspec.convert(fields, Event) if isinstance(fields, list) else _from_names(fields)
    except (msgspec.ValidationError, TypeError) as error:
        raise UsageError(f"no event: {error}") from error


def _from_names(fields: object) -> Event:
    """The event of an object; fields that this version does not know are left out."""
    if not isinstance(fields, dict):
        raise TypeError("it must be an object")
    event = Event(**{name: value for name, value in fields.items() if name in Event._fields})
    return msgspec.convert(list(event), Event)
