"""The client as the threads of sessions see it: a call returns when it is written, or answered.

That an update is written before the next piece of an answer is taken is the back pressure: a client that reads slowly
slows the turn down, and no memory fills.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError
from typing import Any, TypeVar

import acp
from acp.schema import (
    AcceptElicitationResponse,
    AllowedOutcome,
    ElicitationFormSessionMode,
    ElicitationSchema,
    ElicitationStringPropertySchema,
    PermissionOption,
    ToolCallUpdate,
)
from pydantic import ValidationError

Result = TypeVar("Result")
_INTERNAL = -32603  # the code of an error that is not of the request
_POLL_S = 0.05  # so often a wait looks whether the turn was cancelled


class ClientLink:
    """The client of a connection, for any thread but that of the event loop."""

    def __init__(self, client: acp.Client, loop: asyncio.AbstractEventLoop, *, has_forms: bool) -> None:
        """has_forms: the client shows forms to the person."""
        self._client, self._loop = client, loop
        self.has_forms = has_forms
        self._closed = threading.Event()

    def close(self) -> None:
        """Wait no longer for a client that does not read."""
        self._closed.set()

    def update(self, session: str, update: Any) -> bool:
        """Tell what happened in a session; False if the client is gone."""
        with contextlib.suppress(ConnectionError):
            self._call(lambda: self._client.session_update(session, update), self._closed)
            return not self._closed.is_set()
        return False

    def choose(
        self, session: str, call: ToolCallUpdate, options: Sequence[PermissionOption], cancel: threading.Event
    ) -> str | None:
        """Return the id of the option that the person takes; None if they take none, or the turn is cancelled."""
        response = self._call(lambda: self._client.request_permission(session, call, list(options)), cancel)
        outcome = response.outcome if response else None
        return outcome.option_id if isinstance(outcome, AllowedOutcome) else None

    def ask(self, session: str, question: str, choices: Sequence[str], cancel: threading.Event) -> str | None:
        """Return what the person writes into a form with one field, or chooses in it; None for no answer."""
        field = ElicitationStringPropertySchema(type="string", title="Answer", enum=list(choices) or None)
        schema = ElicitationSchema(type="object", properties={"answer": field}, required=["answer"])
        mode = ElicitationFormSessionMode(session_id=session, requested_schema=schema)
        response = self._call(lambda: self._client.create_elicitation(question, mode), cancel)
        content = response.content if isinstance(response, AcceptElicitationResponse) else None
        answer = (content or {}).get("answer")
        return str(answer) if answer is not None else None

    def _call(self, make_call: Callable[[], Coroutine[Any, Any, Result]], cancel: threading.Event) -> Result | None:
        """Return the result of a call; None if the turn is cancelled before. Raises ConnectionError, RequestError."""
        call = make_call()
        try:
            future = asyncio.run_coroutine_threadsafe(call, self._loop)
        except RuntimeError as error:
            call.close()
            raise ConnectionError("the connection is closed") from error
        while True:
            try:
                return future.result(_POLL_S)
            except ValidationError as error:  # of the package: the answer of the client is of no known form
                raise acp.RequestError(
                    _INTERNAL, f"its answer cannot be read ({error.error_count()} faults)"
                ) from error
            except TimeoutError:
                if cancel.is_set():
                    future.cancel()
                    return None
            except CancelledError as error:
                raise ConnectionError("the connection is closing") from error
