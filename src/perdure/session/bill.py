"""The cost in tokens of each part of a session's context."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perdure.environ import local_now
from perdure.floor.platforms import CHAT
from perdure.formats.perdure import AnyEntry
from perdure.models.chat import ChatMessage, ToolSpec
from perdure.regex import lazy_re
from perdure.session.assemble import ContextZones, assemble_zones
from perdure.session.blocks import FLOOR, BlockFile
from perdure.session.budget import count_message, count_tools
from perdure.session.catalog import resolve_name
from perdure.session.log import read_path, read_start, read_tree
from perdure.session.spending import SessionTotals, sum_by_job
from perdure.text import tokens

if TYPE_CHECKING:
    from perdure.home import Home

_LAYER = lazy_re(r"(?:\A|\n\n)# (system|profile|core|notes|insights|cards|recent|overall|diary)\n\n", re.ASCII)


@dataclass(frozen=True)
class BilledPart:
    """One part of a context."""

    name: str
    n_tokens: int  # an estimate
    n_messages: int = 0


@dataclass(frozen=True)
class SessionBill:
    """The parts of the context with which a session would go on."""

    session: str
    parts: tuple[BilledPart, ...]
    window_tokens: int  # of the model that would answer; 0 if none is set
    totals_by_job: Mapping[str, SessionTotals]  # what the session cost until now

    @property
    def n_tokens(self) -> int:
        """The sum over the parts, an estimate."""
        return sum(part.n_tokens for part in self.parts)


def make_bill(home: Home, name: str, *, cwd: str | None = None) -> SessionBill:
    """Return the bill of a session, or of the path to an entry; name: see `catalog.resolve_name`.

    Raises SessionMissing, UsageError if several begin so.
    """
    session, entry_id = resolve_name(home, name, cwd=cwd)
    path, texts = read_path(home, session, entry_id), BlockFile(home.path, session, is_kept=True).read()
    if FLOOR not in texts:
        cwd = read_start(home, session).cwd or None
        texts = {**texts, FLOOR: home.floor.layers(cwd=cwd, platform=CHAT, now=local_now()).text}
    chat = home.chat("resident", job="chat")
    totals_by_job = sum_by_job(read_tree(home, session))
    return SessionBill(session, tuple(list_parts(path, texts)), chat.window_tokens if chat else 0, totals_by_job)


def list_parts(
    path: Sequence[AnyEntry], texts: Mapping[str, str], specs: Sequence[ToolSpec] = ()
) -> list[BilledPart]:  # fmt: skip
    """Return the parts of the context of a path, in the order in which a model reads them.

    The layers of the floor, the tools, the zones of the session, and what recall put beside the messages.
    """
    whole = assemble_zones(path, texts)
    bare = assemble_zones(path, {name: text for name, text in texts.items() if name == FLOOR})
    n_beside = _count_session(whole) - _count_session(bare)
    zones = [
        BilledPart(name, _count(messages), len(messages))
        for name, messages in (("head", bare.head), ("summary", bare.summary), ("tail", bare.tail))
        if messages
    ]
    tools = [BilledPart("tools", count_tools(specs))] if specs else []
    recalled = [BilledPart("recalled beside the messages", n_beside)] if n_beside else []
    return [*_list_layers(texts.get(FLOOR, "")), *tools, *zones, *recalled]


def _count(messages: Sequence[ChatMessage]) -> int:
    return sum(map(count_message, messages))


def _count_session(zones: ContextZones) -> int:
    return _count([*zones.head, *zones.summary, *zones.tail])


def _list_layers(floor: str) -> Iterator[BilledPart]:
    """Yield the layers of a floor, by their headings."""
    starts = list(_LAYER.finditer(floor))
    ends = [*(match.start() for match in starts[1:]), len(floor)]
    for match, end in zip(starts, ends, strict=False):  # no heading: no layer
        yield BilledPart(f"floor: {match[1]}", tokens(floor[match.start() : end]))
