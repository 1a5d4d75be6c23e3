"""A question to the person in the middle of a turn: the session's thread asks, the terminal's thread answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from perdure.agent.permission import PermissionRequest
    from perdure.session.session import TurnListener

_POLL_S = 0.1


class ModelQuestion(NamedTuple):
    """What the model wants to know (the tool ask_user)."""

    question: str
    choices: Sequence[str]


@dataclass
class PersonQuestion:
    """One question, and the place for its answer."""

    subject: PermissionRequest | ModelQuestion
    _answer: Future[Any] = field(default_factory=Future)

    def answer(self, value: Any) -> None:
        """Give the answer; None stands for none."""
        self._answer.set_result(value)

    def wait(self, cancel: threading.Event) -> Any:
        """Return the answer; None once the turn is cancelled."""
        while not cancel.is_set():
            try:
                return self._answer.result(_POLL_S)
            except TimeoutError:
                continue
        return None


@dataclass(frozen=True)
class TurnLink:
    """The terminal as the session's thread knows it for one turn."""

    listener: TurnListener
    cancel: threading.Event
    ask: Callable[[PermissionRequest | ModelQuestion], Any]  # waits for the person; None for no answer
    tell: Callable[[str], None]
    is_attended: bool = True  # False: nobody can be asked
