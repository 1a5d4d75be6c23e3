"""A session of our own as the page shows it: rounds of a message and its answers, calls folded, ways to other branches.

Pure. Everything in it was written by others, and is escaped where it is rendered; secrets are masked here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from perdure.access.redact import mask
from perdure.agent.permission import PermissionRequest
from perdure.formats.perdure import AnyEntry, Boundary, CallEntry, ImageEntry, Message, Start
from perdure.session.tree import SessionTree
from perdure.surfaces.web import diffs
from perdure.surfaces.web.diffs import DiffBudget, DiffRow, FileDiff
from perdure.text import one_line, spell_out

OUTPUT_CHARS = 4_000  # of a call's input and of its output; the transcript has the rest
_ABOUT_CHARS = 90
_NONCE = re.compile(r"\[perdure-recall ([0-9a-f]{16}) begins\]")


@dataclass(frozen=True, slots=True)
class ShownImage:
    """An image of an entry."""

    entry: str
    n: int


@dataclass(slots=True)
class ShownCall:
    """A call of a tool, with its output as far as there is one."""

    call_id: str
    name: str
    about: str
    inputs: list[tuple[str, str]]
    changes: tuple[FileDiff, ...]
    output: str = ""
    state: Literal["running", "done", "failed"] = "running"
    permission: str = ""  # why it ran, or why it did not
    images: list[ShownImage] = field(default_factory=list)
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class ShownText:
    """Words of the model."""

    kind: Literal["answer", "thought", "summary", "end"]  # end: why an answer is not whole
    text: str


@dataclass(slots=True)
class Round:
    """A message of a person, and what followed."""

    message: Message
    text: str
    images: list[ShownImage]
    parts: list[ShownText | ShownCall] = field(default_factory=list)
    branches: tuple[str, ...] = ()  # the messages that stand at the same place, this one among them
    before: str = ""  # the entry before the message: from there it can be said otherwise
    last: str = ""  # the last entry of the round
    model: str = ""

    @property
    def is_answered(self) -> bool:
        """True if anything followed the message."""
        return bool(self.parts)

    @property
    def last_answer(self) -> str:
        """The words of the model that came last; "" if there are none."""
        answers = [part.text for part in self.parts if isinstance(part, ShownText) and part.kind == "answer"]
        return answers[-1] if answers else ""

    @property
    def place(self) -> int:
        """Which of its branches it is, from 1."""
        return self.branches.index(self.message.id) + 1 if self.branches else 1


def list_rounds(tree: SessionTree, leaf: str = "") -> list[Round]:
    """Return the rounds that lead to a leaf, oldest first."""
    path = tree.find_path(leaf)
    branches = _find_branches(tree)
    rounds: list[Round] = []
    calls: dict[str, ShownCall] = {}
    budget = DiffBudget()
    for entry in path:
        if isinstance(entry, Message) and entry.role == "user":
            rounds.append(
                Round(
                    entry, mask(entry.text), _list_images(entry), branches=branches.get(entry.id, ()),
                    before=tree.get_parent(entry.id),
                )
            )  # fmt: skip
        if not rounds:
            continue
        rounds[-1].last = entry.id
        if isinstance(entry, Message) and entry.role == "assistant":
            _add_answer(rounds[-1], entry, calls, budget)
        elif isinstance(entry, Message) and entry.role == "tool":
            _add_output(calls, entry)
        elif isinstance(entry, Boundary):
            rounds[-1].parts.append(ShownText("summary", mask(entry.summary)))
    return rounds


def find_newest_leaf(tree: SessionTree, entry_id: str) -> str:
    """Return the entry that was written last below an entry; the entry itself if nothing is below."""
    below = {entry_id}
    newest = entry_id
    for entry in tree:
        if entry.id in below or tree.get_parent(entry.id) in below:
            below.add(entry.id)
            newest = entry.id if not _is_aside(entry) else newest
    return newest


def find_nonce(block: str) -> str:
    """Return the code of the recall in the text beside a message; "" if there is none."""
    match = _NONCE.search(block)
    return match[1] if match else ""


def list_request_rows(request: PermissionRequest) -> tuple[DiffRow, ...]:
    """Return the whole change that a call asks for: what a person allows stands there in full."""
    kinds: dict[str, Any] = {"+": "add", "-": "del", "@": "gap"}
    lines = request.change.diff.splitlines() if request.change else []
    return tuple(
        DiffRow("gap" if line.startswith(("+++ ", "--- ")) else kinds.get(line[:1], "same"), spell_out(line))
        for line in lines
    )


def list_request_inputs(call: CallEntry) -> list[tuple[str, str]]:
    """Return the whole input of a call, each value as a text in which nothing is hidden."""
    return [(name, spell_out(_to_words(value))) for name, value in call.input.items()]


def _to_words(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _is_aside(entry: AnyEntry) -> bool:
    return entry.__class__.__name__ in ("Label", "Title")


def _list_images(entry: Message) -> list[ShownImage]:
    return [ShownImage(entry.id, n) for n, _ in enumerate(entry.images)]


def _add_answer(shown: Round, entry: Message, calls: dict[str, ShownCall], budget: DiffBudget) -> None:
    shown.model = entry.model or shown.model
    if entry.thought.strip():
        shown.parts.append(ShownText("thought", mask(entry.thought)))
    if entry.text.strip():
        shown.parts.append(ShownText("answer", mask(entry.text)))
    for call in entry.calls:
        calls[call.id] = _show_call(call, budget)
        shown.parts.append(calls[call.id])
    if entry.stop in _ENDS:
        shown.parts.append(ShownText("end", _ENDS[entry.stop]))


_ENDS = {
    "cancelled": "Stopped here.",
    "failed": "The model broke off here.",
    "length": "The answer is cut off here: it reached the model's limit.",
    "refused": "The model refused to go on.",
}


def _show_call(call: CallEntry, budget: DiffBudget) -> ShownCall:
    changes = diffs.list_changes(call.name, _mask_input(call.input), budget)
    inputs = [] if changes else [(name, mask(_to_words(value))) for name, value in call.input.items()]
    about = " ".join(_to_words(value) for value in call.input.values())
    return ShownCall(
        call.id, call.name, one_line(mask(about), _ABOUT_CHARS),
        [(name, value[:OUTPUT_CHARS]) for name, value in inputs], changes,
        is_cut=any(len(value) > OUTPUT_CHARS for _, value in inputs),
    )  # fmt: skip


def _mask_input(given: Any) -> dict[str, Any]:
    return {name: mask(value) if isinstance(value, str) else value for name, value in given.items()}


def _add_output(calls: dict[str, ShownCall], entry: Message) -> None:
    call = calls.get(entry.call_id)
    if call is None:
        return
    text = mask(entry.text)
    call.output, call.is_cut = text[:OUTPUT_CHARS], call.is_cut or len(text) > OUTPUT_CHARS
    call.state = "failed" if entry.is_error else "done"
    call.permission = mask(entry.permission)
    call.images = _list_images(entry)


def _find_branches(tree: SessionTree) -> dict[str, tuple[str, ...]]:
    """Map each message of a person to those that stand at the same place, where there are several."""
    by_anchor: dict[str, list[str]] = {}
    for entry in tree:
        if isinstance(entry, Message) and entry.role == "user":
            by_anchor.setdefault(_find_anchor(tree, entry.id), []).append(entry.id)
    return {one: tuple(ids) for ids in by_anchor.values() if len(ids) > 1 for one in ids}


def _find_anchor(tree: SessionTree, entry_id: str) -> str:
    """Return the message, or the beginning, after which an entry stands."""
    parent = tree.get_parent(entry_id)
    while parent and not isinstance(tree.get(parent), Message | Start):
        parent = tree.get_parent(parent)
    return parent


def find_image(tree: SessionTree, entry_id: str, n: int) -> ImageEntry | None:
    """Return an image of an entry, or None."""
    entry = tree.get(entry_id)
    images: Sequence[ImageEntry] = entry.images if isinstance(entry, Message) else ()
    return images[n] if 0 <= n < len(images) else None
