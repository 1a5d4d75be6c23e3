"""Projection: a run and its turns become rows. Pure: what is to be written, not the writing.

Everything that leaves here is masked: secrets are taken out of a part as a whole, before it is cut into chunks,
so that none survives in two halves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from perdure import text
from perdure.access.redact import mask
from perdure.identity import thread_run_id, turn_id
from perdure.index.rows import ChunkRow, RunRow, TurnRow
from perdure.index.values import ms
from perdure.patterns import late
from perdure.types import Parsed, Part, Run, Turn

CHUNK_CHARS = 2000  # decisions/005: the unit of ranking; about 500 tokens
OVERLAP_CHARS = 200
INTENT_CHARS = 500
_NAMED = late(r"([^\W\d_a-zß-öø-ÿ][\w.'-]{0,30}(?: [^\W\d_a-zß-öø-ÿ][\w.'-]{0,30}){0,2}): ")
_KINDS = {"pasted": "text", "image": "result"}  # what is filed under another kind


def project(run: Run, parsed: Parsed) -> list[RunRow]:
    """The captured run and, behind it, its inline sidechains as child runs."""
    threads: dict[str, list[Turn]] = {"": []}
    for turn in parsed.turns:
        threads.setdefault(turn.thread, []).append(turn)
    return [_run_row(run, thread, turns, parsed.title if not thread else "") for thread, turns in threads.items()]


def _run_row(run: Run, thread: str, turns: Sequence[Turn], title: str) -> RunRow:
    rows = tuple(_turn_row(run, turn) for turn in turns)
    times = [row.stated_ms for row in rows if row.stated_ms is not None]
    return RunRow(
        run_id=thread_run_id(run.run_id, thread) if thread else run.run_id,
        thread=thread,
        title=text.one_line(mask(title), 200),
        intent=_intent(turns),
        turns=rows,
        n_calls=sum(part.kind == "call" for turn in turns for part in turn.parts),
        n_tokens=sum(turn.n_tokens for turn in turns),
        started_ms=min(times, default=None if thread else ms(run.started_at)),
        ended_ms=max(times, default=None if thread else ms(run.ended_at)),
    )


def _intent(turns: Sequence[Turn]) -> str:
    asked = [t for t in turns if t.role == "user" and not t.is_summary]
    first = next((t for t in asked if t.author == "person"), asked[0] if asked else None)
    return mask(text.clip(first.text("text", "pasted").strip(), INTENT_CHARS)) if first else ""


def _turn_row(run: Run, turn: Turn) -> TurnRow:
    identifier = turn_id(run.source, turn.offset)
    chunks = tuple(_chunks(identifier, turn.parts))
    first = next((chunk.text for chunk in chunks if chunk.kind == "text"), "")
    is_said = turn.author in ("person", "agent") and bool(first)
    own = copy_key(run.source.user, run.source.runtime, turn.native_id) if turn.native_id else None
    return TurnRow(
        turn_id=identifier,
        copy_key=_number(f"\0{identifier}") if own is None else own,
        turn=turn,
        stated_ms=ms(turn.stated_at),
        chunks=chunks,
        facets=tuple(dict.fromkeys(_facets(turn))),
        thread=_number(f"{run.source.key}\0{turn.thread}"),
        is_said=is_said,
        speaker=_speaker(first) if is_said else "",
    )


def copy_key(user: str, runtime: str, native_id: str) -> int:
    """The number by which copies of one message are known."""
    return _number(f"{user}\0{runtime}\0{native_id}")


def _speaker(words: str) -> str:
    """The name that stands in front of the words, or "".

    >>> _speaker("Ada Byron: we moor at the quay"), _speaker("see this: it works")
    ('Ada Byron', '')
    """
    found = _NAMED.match(words)
    return found[1] if found else ""


def _chunks(identifier: str, parts: Sequence[Part]) -> Iterator[ChunkRow]:
    n = 0
    for kind, words in _joined(parts):
        masked = mask(words)
        for low, high in text.split(masked, max_chars=CHUNK_CHARS, overlap_chars=OVERLAP_CHARS):
            yield ChunkRow(n, kind, masked[low:high], _number(f"{identifier}/{n}"))
            n += 1


def _joined(parts: Sequence[Part]) -> Iterator[tuple[str, str]]:
    """Parts as (kind, words): neighbours of one kind together, a call with its tool's name in front."""
    kind, words = "", ""
    for part in parts:
        said = f"{part.name} {part.text}" if part.kind == "call" else part.text
        if not said.strip():
            continue
        filed = _KINDS.get(part.kind, part.kind)
        if filed == kind and kind != "result":
            words += "\n\n" + said
            continue
        if words:
            yield kind, words
        kind, words = filed, said
    if words:
        yield kind, words


def _facets(turn: Turn) -> Iterator[tuple[str, str]]:
    yield from (("file", path) for path in turn.files)
    yield from (("skill", skill) for skill in turn.skills)
    yield from (("tool", part.name) for part in turn.parts if part.kind == "call" and part.name)
    if turn.role in ("user", "assistant") and not turn.is_summary:
        for part in turn.parts:
            if part.kind == "text":
                yield from (("entity", name) for name in text.entities(mask(part.text)))


def _number(name: str) -> int:
    """A signed 64-bit number from a name: equal names, equal numbers, in every index."""
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
