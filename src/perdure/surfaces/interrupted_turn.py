"""The answer to a message whose process was killed, for surfaces where nobody waits at a screen. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.formats.perdure import AnyEntry, Message

NO_WORDS = "The model said nothing."
INTERRUPTED = (
    "I was interrupted in the middle of your {what}. What was done is kept, and nothing runs again by itself. "
    "Write “go on”, or something else."
)


def recover_answer(path: Sequence[AnyEntry], leaf: str, typed: str, what: str) -> str:
    """Return the answer to a message that was being answered; "" if the message is not in the log yet.

    path: to where the session goes on. leaf: its last entry before the message. typed: the words of the message, or ""
    where there were none. what: the person sent, for an answer that is not whole.
    """
    later = next((path[n + 1 :] for n, entry in enumerate(path) if entry.id == leaf), path)
    messages = [entry for entry in later if isinstance(entry, Message)]
    if not messages or messages[0].role != "user" or (typed and messages[0].text != typed):
        return ""
    last = messages[-1]
    is_whole = last.role == "assistant" and not last.calls and last.stop not in ("cancelled", "failed")
    return (last.text or NO_WORDS) if is_whole else INTERRUPTED.format(what=what)
