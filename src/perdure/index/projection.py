"""Projection: turn a run and its turns into rows. Pure: it returns what to write, and writes nothing.

All text is masked: secrets are masked in a whole part before it is cut into chunks, so that no secret
survives in two halves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import chain

from perdure import text
from perdure.access.redact import mask
from perdure.formats.action_facts import STATUS_RUNTIMES, FactDraft, find_facts
from perdure.formats.call_text import calls_web, writes_memory
from perdure.formats.prompt_text import find_request, is_client_notice, strip_wrappers
from perdure.identity import make_thread_run_id, make_turn_id
from perdure.index.encoding import OWN_WRITE, PICTURE_KIND, WEB_CALL, to_ms
from perdure.index.write import ChunkRow, FactRow, RunRow, TurnRow
from perdure.regex import lazy_re
from perdure.types import EXTERNAL_RUNTIMES, STORE_RUNTIMES, ParsedLines, Part, Run, Turn

CHUNK_CHARS = 2000  # decisions/005: the unit of ranking; about 500 tokens
OVERLAP_CHARS = 200
MAX_INTENT_CHARS = 500
MAX_TITLE_CHARS = 200
MAX_FACT_CHARS = 500  # of the text of a fact of action; a longer command is not told
MAX_FACET_CHARS = 500  # of a file, tool or name that is asked for; the keys of a database are limited, too
_SPEAKER = lazy_re(r"([^\W\d_a-zß-öø-ÿ][\w.'-]{0,30}(?: [^\W\d_a-zß-öø-ÿ][\w.'-]{0,30}){0,2}): ")
_CHUNK_KINDS = {"pasted": "text", "image": "result"}  # parts that are stored under another kind


def project_run(run: Run, parsed: ParsedLines) -> list[RunRow]:
    """Return rows for the captured run and, after it, for its inline sidechains as child runs."""
    threads: dict[str, list[Turn]] = {"": []}
    for turn in parsed.turns:
        threads.setdefault(turn.thread, []).append(turn)
    return [_build_run_row(run, thread, turns, parsed.title if not thread else "") for thread, turns in threads.items()]


def _build_run_row(run: Run, thread: str, turns: Sequence[Turn], title: str) -> RunRow:
    facts = _find_facts(run, turns)
    rows = tuple(_build_turn_row(run, turn, facts.get(place, ())) for place, turn in enumerate(turns))
    times = [row.stated_ms for row in rows if row.stated_ms is not None]
    return RunRow(
        run_id=make_thread_run_id(run.run_id, thread) if thread else run.run_id,
        thread=thread,
        title=build_title(title),
        intent=find_intent(turns),
        turns=rows,
        n_calls=sum(part.kind == "call" for turn in turns for part in turn.parts),
        n_tokens=sum(turn.n_tokens for turn in turns),
        started_ms=min(times, default=None if thread else to_ms(run.started_at)),
        ended_ms=max(times, default=None if thread else to_ms(run.ended_at)),
    )


def _find_facts(run: Run, turns: Sequence[Turn]) -> dict[int, list[FactDraft]]:
    """Return the facts of action of a thread, by the place of their turn; none of documents."""
    runtime = run.source.runtime
    if runtime in EXTERNAL_RUNTIMES:
        return {}
    return find_facts(turns, run.project or run.cwd, has_status=runtime in STATUS_RUNTIMES)


def build_title(client_title: str) -> str:
    """Return the title that a client gave a session, masked; "" for a text that a program wrapped around something."""
    return mask(strip_wrappers(client_title, MAX_TITLE_CHARS))


def find_intent(turns: Sequence[Turn]) -> str:
    """Return what was asked first in these turns, masked: by a person, or else by the program that started them."""
    user_turns = [turn for turn in turns if turn.role == "user" and not turn.is_summary]
    typed_texts = [turn.text("text") for turn in user_turns if turn.author == "person"]
    other_texts = [turn.text("text") for turn in user_turns if turn.author != "person"]
    requests = (find_request(turn_text, MAX_INTENT_CHARS) for turn_text in typed_texts)
    short_requests = (strip_wrappers(turn_text, MAX_INTENT_CHARS) for turn_text in typed_texts)
    tasks = (find_request(turn_text, MAX_INTENT_CHARS) for turn_text in other_texts)
    return mask(next(filter(None, chain(requests, short_requests, tasks)), ""))


MACHINE_ROLE = "machine"  # role in filters of what a program wrote about the work: plans, summaries, reports
NOTICE_ROLE = "notice"  # of what a client wrote for itself: rules, skills, output of its commands
RECORD_ROLE = "record"  # of what another product stored: recall tells the memory that was made of it, or nothing


def find_filter_role(runtime: str, turn: Turn) -> str:
    """Return the role of a turn in filters; recall leaves out notices and records."""
    if runtime in STORE_RUNTIMES:
        return RECORD_ROLE
    if turn.role != "user" or turn.author != "machine":
        return turn.role
    return NOTICE_ROLE if is_client_notice(turn.text("text")) else MACHINE_ROLE


def _build_turn_row(run: Run, turn: Turn, facts: Sequence[FactDraft]) -> TurnRow:
    identifier = make_turn_id(run.source, turn.offset)
    mask_once = cache(mask)  # what is cut into chunks is searched for names, too
    chunks = tuple(_split_into_chunks(identifier, turn.parts, mask_once))
    first_text = next((chunk.text for chunk in chunks if chunk.kind == "text"), "")
    is_said = turn.author in ("person", "agent") and bool(first_text)
    own_copy_key = compute_copy_key(run.source.user, run.source.runtime, turn.native_id) if turn.native_id else None
    return TurnRow(
        turn_id=identifier,
        copy_key=_hash_to_number(f"\0{identifier}") if own_copy_key is None else own_copy_key,
        turn=turn,
        stated_ms=to_ms(turn.stated_at),
        chunks=chunks,
        facets=tuple(dict.fromkeys(_list_facets(turn, mask_once))),
        thread=_hash_to_number(f"{run.source.key}\0{turn.thread}"),
        is_said=is_said,
        filter_role=find_filter_role(run.source.runtime, turn),
        speaker=_find_speaker(first_text) if is_said else "",
        facts=tuple(_build_fact_row(n, fact) for n, fact in enumerate(facts)),
        pictures=tuple(_list_pictures(turn.parts)),
    )


def _list_pictures(parts: Sequence[Part]) -> dict[str, None]:
    """Return the digests of the pictures that can be read: not of documents, nor of what lies elsewhere."""
    pictures = (part for part in parts if part.kind == "image" and part.name.startswith("image"))
    return dict.fromkeys(part.digest for part in pictures if part.digest)


def _build_fact_row(n: int, fact: FactDraft) -> FactRow:
    text, detail = mask(fact.text), mask(fact.detail)
    return FactRow(n, fact.kind, text[:MAX_FACT_CHARS], detail, tuple(map(hash_fact_key, fact.keys)))


def hash_fact_key(key: str) -> int:
    """Return the number under which the index has a key of a fact of action."""
    return _hash_to_number(f"fact\0{mask(key)}")


def compute_copy_key(user: str, runtime: str, native_id: str) -> int:
    """Return the number that all copies of one message share."""
    return _hash_to_number(f"{user}\0{runtime}\0{native_id}")


def _find_speaker(words: str) -> str:
    """Return the name that stands before the words, or "".

    >>> _find_speaker("Ada Byron: we moor at the quay"), _find_speaker("see this: it works")
    ('Ada Byron', '')
    """
    match = _SPEAKER.match(words)
    return match[1] if match else ""


def _split_into_chunks(identifier: str, parts: Sequence[Part], mask_text: Callable[[str], str]) -> Iterator[ChunkRow]:
    n = 0
    for kind, kind_text in _join_parts(parts):
        masked = mask_text(kind_text)
        for low, high in text.split(masked, max_chars=CHUNK_CHARS, overlap_chars=OVERLAP_CHARS):
            yield ChunkRow(n, kind, masked[low:high], _hash_to_number(f"{identifier}/{n}"))
            n += 1


def split_picture_text(turn_id: str, first: int, texts: Sequence[str]) -> Iterator[ChunkRow]:
    """Yield the chunks of the texts that were read in a turn's pictures; they are numbered from `first`."""
    n = first
    for picture_text in texts:
        masked = mask(picture_text)
        for low, high in text.split(masked, max_chars=CHUNK_CHARS, overlap_chars=OVERLAP_CHARS):
            yield ChunkRow(n, PICTURE_KIND, masked[low:high], _hash_to_number(f"{turn_id}/{PICTURE_KIND}/{n}"))
            n += 1


def _join_parts(parts: Sequence[Part]) -> Iterator[tuple[str, str]]:
    """Yield parts as (kind, words): neighbours of one kind together, a call with its tool's name before it.

    A call that writes into Perdure is stored like a result: search finds it, and recall does not tell it.
    """
    kind, joined_text = "", ""
    for part in parts:
        part_text = f"{part.name} {part.text}" if part.kind == "call" else part.text
        if not part_text.strip():
            continue
        chunk_kind = "result" if _writes_memory(part) else _CHUNK_KINDS.get(part.kind, part.kind)
        if chunk_kind == kind and kind != "result":
            joined_text += "\n\n" + part_text
            continue
        if joined_text:
            yield kind, joined_text
        kind, joined_text = chunk_kind, part_text
    if joined_text:
        yield kind, joined_text


def _writes_memory(part: Part) -> bool:
    return part.kind == "call" and writes_memory(part.name, part.text)


def _calls_web(part: Part) -> bool:
    return part.kind == "call" and calls_web(part.name, part.text) and not _writes_memory(part)


def _list_facets(turn: Turn, mask_text: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    """Yield (kind, value) of what a turn can be filtered by. Nobody asks for a value that is longer than a path."""
    return (facet for facet in _list_all_facets(turn, mask_text) if len(facet[1]) <= MAX_FACET_CHARS)


def _list_all_facets(turn: Turn, mask_text: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    if any(map(_writes_memory, turn.parts)):
        yield OWN_WRITE
    if any(map(_calls_web, turn.parts)):
        yield WEB_CALL
    yield from (("file", path) for path in turn.files)
    yield from (("skill", skill) for skill in turn.skills)
    yield from (("image", part.name or "image") for part in turn.parts if part.kind == "image")
    yield from (("tool", part.name) for part in turn.parts if part.kind == "call" and part.name)
    if turn.role in ("user", "assistant") and not turn.is_summary:
        for part in turn.parts:
            if part.kind == "text":
                yield from (("entity", name) for name in text.entities(mask_text(part.text)))


def _hash_to_number(key: str) -> int:
    """Return a signed 64-bit number for a name: equal names give equal numbers, in every index."""
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
