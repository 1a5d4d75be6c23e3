"""Keyword search: a person's words to ranked turns. BM25 inside SQLite, one MATCH for everything.

The owner decides which table is opened; those of others are asked as well where a grant lets the principal read
something in them, and what may be read is tested inside the query (`visible`). The other filters narrow the candidates
inside the same query, before the best are taken. A filter that leaves little is a word inside MATCH; one that leaves
much is a column test, which costs less there. Words that stand in a large part of all chunks say little and cost most:
`passes` decides which terms make candidates, and the answer names what was left out (decisions/004).
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from perdure import text
from perdure.access.redact import mask
from perdure.index import visible
from perdure.index.passes import Plan, last, passes, plan, relaxed
from perdure.index.store import Connection
from perdure.index.values import instant, ms, scope_token
from perdure.index.visible import Visible
from perdure.index.wording import MEMORY
from perdure.types import Facets, Filters, Found, Hit, Live, Principal

MOST_SHARED = 1000  # chunks of another owner that a word is counted in, where they share them
MOST_COUNTED = 20_000  # matching chunks that facets are counted over: 30 ms
BUDGET_SHARE = 0.02  # chunks that one query may rank, as a share of the owner's (decisions/004, docs/evaluation)
BUDGET_MIN = 3000  # but never fewer than this
_SELECTIVE_SHARE = 0.1  # a filter that leaves less than this becomes a word inside MATCH
_TIES = 200  # chunks fetched beyond those wanted, so that equal scores at the cut are ordered without another pass
_HELD = "(chunk.conversation = ? AND coalesce(chunk.stated_ms, ?) >= ?)"  # by a session that is going on
_EVER_MS = 2**62  # the time of what has none, when it is asked whether a session still holds it
_CHUNKS_PER_TURN = 4  # best chunks fetched per wanted turn: long turns match more than once
_PIECES = 20  # of a turn that are shown
_NAMED = ("projects", "conversations", "runtimes", "machines", "agents", "roles", "kinds")
_FEW_NAMES = ("roles", "kinds")  # asked for so often with all that there is that it is worth a look
KIND_OF = {name: name.removesuffix("s") for name in _NAMED}
_FACETS = {"files": "file", "tools": "tool", "skills": "skill", "entities": "entity"}


@dataclass(frozen=True)
class _Narrowing:
    """Filters as SQL: words for MATCH, tests for WHERE with their values; `nothing` when none can match."""

    words: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    values: tuple[object, ...] = ()
    n_left: int | None = None  # at most so many chunks pass the words; None when there are none
    nothing: bool = False
    without: str = ""  # a word of what is left out: memories, where turns are asked for

    def match(self, expression: str) -> str:
        """The MATCH of an expression over texts, narrowed."""
        kept = f" AND scope : ({' AND '.join(self.words)})" if self.words else ""
        return f"(text : ({expression}){kept})" + (f" NOT scope : {self.without}" if self.without else "")

    def scoped(self) -> str:
        """The MATCH of the filters alone; "" when none is a word."""
        return f"scope : ({' AND '.join(self.words)})" if self.words else ""


class Scored(NamedTuple):
    """A chunk that a query found."""

    chunk: int
    turn: int
    score: float
    tie: int


class Named(NamedTuple):
    """A chunk that holds the words of a name."""

    chunk: int
    turn: int
    text: str


def search(index: Connection, principal: Principal, query: str, *, filters: Filters, limit: int) -> Found:
    """The best turns for a query, best first, or the newest that the filters leave when it has no words."""
    started = time.perf_counter()
    with index.reading():
        found = candidates(index, principal, query, filters=filters, limit=limit)
        chosen = by_rank(index, principal, hits(index, _best_of_turns(found.scored, limit)))
    return Found(chosen, terms=found.terms, dropped=found.dropped, took_ms=_since(started))


def by_rank(index: Connection, principal: Principal, found: Sequence[Hit]) -> tuple[Hit, ...]:
    """Hits as they may be told: where others share what they have, the scores are by rank, and theirs say no more.

    BM25 counts in how many chunks of its owner a word stands, private ones included.
    """
    if not visible.of(index, principal).owners:
        return tuple(found)
    ranked = (replace(hit, score=1 / place if hit.score else 0.0) for place, hit in enumerate(found, start=1))
    return tuple(hit if hit.user == principal.user else _masked(hit) for hit in ranked)


def _masked(hit: Hit) -> Hit:
    """Another owner's hit."""
    return replace(
        hit, keyword_score=None, conversation=mask(hit.conversation), title=mask(hit.title),
        project=mask(hit.project) if hit.project else hit.project,
    )  # fmt: skip


@dataclass(frozen=True)
class Candidates:
    """What the words found."""

    scored: Sequence[Scored] = ()  # the best chunks, best first
    terms: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


def candidates(index: Connection, principal: Principal, query: str, *, filters: Filters, limit: int) -> Candidates:
    """Chunks of at least so many turns, if so many match, inside the caller's snapshot."""
    seen = visible.of(index, principal)
    terms = text.without_stopwords(text.query_terms(query))
    if not terms:
        newest = [
            row for owner in seen.every for row in _newest(index, owner, _narrowed(index, seen, filters, owner), limit)
        ]
        return Candidates([scored for _, scored in sorted(newest, key=lambda row: (-row[0], row[1].tie))])
    each = [_of_owner(index, owner, terms, _narrowed(index, seen, filters, owner), limit) for owner in seen.every]
    if len(each) < 2 and not seen.owners:
        return each[0] if each else Candidates()
    best = sorted((item for one in each for item in one.scored), key=lambda item: (-item.score, item.tie))
    return Candidates(best, terms, each[0].dropped if seen.own is not None else ())


def _of_owner(index: Connection, owner: int, terms: Sequence[str], narrowing: _Narrowing, limit: int) -> Candidates:
    """What the words find of one owner's."""
    if narrowing.nothing:
        return Candidates()
    chosen = _plan(index, owner, terms, narrowing)
    return Candidates(_ranked(index, owner, chosen, narrowing, limit), tuple(terms), chosen.dropped)


def _narrowed(index: Connection, seen: Visible, filters: Filters, owner: int) -> _Narrowing:
    """The filters for one owner's table; of another owner's, with what of it may be read."""
    found = _narrow(index, filters, owner)
    if owner == seen.own:
        return found
    words = seen.words.get(owner, ())
    if not words:
        return replace(found, tests=(*found.tests, visible.IS_CHUNK))
    n_left = seen.n_words[owner] if found.n_left is None else min(found.n_left, seen.n_words[owner])
    group = f"({' OR '.join(words)})"
    return replace(found, words=(*found.words, group), tests=(*found.tests, visible.IS_CHUNK), n_left=n_left)


def every(index: Connection, principal: Principal, query: str, *, filters: Filters) -> list[str]:
    """The ids of all the principal's own turns in which every word of the query stands, whatever their number."""
    with index.reading():
        user = index.known("user", principal.user)  # not what others share: what is found is forgotten
        if user is None:
            return []
        narrowing = _narrow(index, filters, user)
        return [turn for (turn,) in _with_all(index, user, text.query_terms(query), narrowing, _EVERY)]


def facets(index: Connection, principal: Principal, query: str, *, filters: Filters) -> Facets:
    """How many of the turns that match have which runtime, machine, project, tag, agent, role and kind.

    A turn matches when any word of the query stands in it, of those that the search ranks by. At most MOST_COUNTED
    pieces are looked at, the earliest captured, and then the answer says that it is partial.
    """
    with index.reading():
        seen = visible.of(index, principal)
        filters = replace(filters, memories=False)
        expression = _asked_for(index, seen, text.without_stopwords(text.query_terms(query)), filters)
        n_turns: dict[str, Counter[int]] = {part: Counter() for part in _PARTS}
        is_partial = False
        for owner in seen.every:
            rows = _turns_by_part(index, owner, expression, _narrowed(index, seen, filters, owner))
            for part, number, n, _ in rows:
                n_turns[part][number] += n
            is_partial = is_partial or sum(n for part, *_, n in rows if part == "run") >= MOST_COUNTED
        return Facets(_by_value(index, n_turns), is_partial)


def _asked_for(index: Connection, seen: Visible, terms: Sequence[str], filters: Filters) -> str:
    """The expression of every term that ranks among the principal's own; "" without any."""
    if not terms or seen.own is None:
        return " OR ".join(map(text.fts_quote, terms))
    chosen = _plan(index, seen.own, terms, _narrow(index, filters, seen.own))
    return " OR ".join(map(text.fts_quote, (t for t in terms if t not in chosen.dropped)))


def _turns_by_part(
    index: Connection, user: int, expression: str, narrowing: _Narrowing
) -> list[tuple[str, int, int, int]]:
    """(part, number of a run, a role or a kind of text, how many turns of it match, and pieces)."""
    if narrowing.nothing:
        return []
    source, where, values = "chunk", ["chunk.user = ?", "chunk.turn > 0", *narrowing.tests], [user, *narrowing.values]
    match = narrowing.match(expression) if expression else narrowing.scoped()
    if match:
        source = f'"words_{user}" CROSS JOIN chunk ON chunk.id = "words_{user}".rowid'
        where, values = [f'"words_{user}" MATCH ?', *where], [match, *values]
    each = " UNION ALL ".join(
        f"SELECT '{part}', {part}, count(DISTINCT turn), count(*) FROM found GROUP BY {part}" for part in _PARTS
    )
    query = f"""WITH found AS MATERIALIZED (SELECT chunk.run, chunk.turn, chunk.role, chunk.kind FROM {source}
        WHERE {" AND ".join(where)} LIMIT ?) {each}"""
    return index.rows(query, *values, MOST_COUNTED)


_PARTS = ("run", "role", "kind")
_BY_RUN = """SELECT run.id, runtime.value, machine.value, project.value, agent.value
  FROM run JOIN name AS runtime ON runtime.id = run.runtime JOIN name AS machine ON machine.id = run.machine
    JOIN name AS project ON project.id = run.project JOIN name AS agent ON agent.id = run.agent
  WHERE run.id IN (SELECT value FROM json_each(?))"""
_TAGS_BY_RUN = """SELECT run, value FROM run_tag JOIN name ON name.id = tag
  WHERE run IN (SELECT value FROM json_each(?))"""
_FACET_NAMES = ("runtime", "machine", "project", "agent")


def _by_value(index: Connection, by_part: Mapping[str, Mapping[int, int]]) -> dict[str, dict[str, int]]:
    """Facet -> value -> turns, most first, from the turns of each run, role and kind."""
    found: dict[str, Counter[str]] = {name: Counter() for name in (*_FACET_NAMES, "tag", "role", "kind")}
    n_turns = by_part["run"]
    wanted = json.dumps(list(n_turns))
    for run, *values in index.rows(_BY_RUN, wanted):
        for name, value in zip(_FACET_NAMES, values, strict=True):
            found[name][value] += n_turns[run]
    for run, tag in index.rows(_TAGS_BY_RUN, wanted):
        found["tag"][tag] += n_turns[run]
    for part in ("role", "kind"):
        query = "SELECT id, value FROM name WHERE id IN (SELECT value FROM json_each(?))"
        for number, value in index.rows(query, json.dumps(list(by_part[part]))):
            found[part][value] += by_part[part][number]
    return {name: dict(sorted(each.items(), key=lambda item: (-item[1], item[0]))) for name, each in found.items()}


_EVERY = ("DISTINCT turn_id", "JOIN turn ON turn.id = chunk.turn", "ORDER BY turn_id")
_NAMING = (
    "coalesce(chunk.stated_ms, 0), tie, chunk.id, chunk.turn, chunk_text.text",
    "JOIN chunk_text ON chunk_text.id = chunk.id",
    "ORDER BY coalesce(chunk.stated_ms, 0) DESC, tie LIMIT ?",
)  # fmt: skip


def _with_all(
    index: Connection, user: int, terms: Sequence[str], narrowing: _Narrowing, parts: tuple[str, str, str],
    *more: object,
) -> list[tuple[Any, ...]]:  # fmt: skip
    """Rows of an owner's chunks that hold every term. parts: columns, joins, order; more: the last values."""
    if narrowing.nothing or not terms:
        return []
    words, (columns, joins, order) = f'"words_{user}"', parts
    match = narrowing.match(" AND ".join(map(text.fts_quote, terms)))
    tests = "".join(f" AND {test}" for test in narrowing.tests)
    query = f"""SELECT {columns} FROM {words} CROSS JOIN chunk ON chunk.id = {words}.rowid {joins}
        WHERE {words} MATCH ?{tests} {order}"""
    return index.rows(query, match, *narrowing.values, *more)


def frequencies(index: Connection, principal: Principal, terms: Iterable[str]) -> tuple[dict[str, int], int]:
    """(term -> in how many of the principal's chunks it stands, all of these chunks).

    Of what others share, those that may be read are counted beside them, MOST_SHARED of each owner's at most.
    """
    seen = visible.of(index, principal)
    total = seen.n_turns
    if seen.own is not None:
        total += int(index.rows("SELECT n_chunks FROM name WHERE id = ?", seen.own)[0][0])
    elif not seen.owners:
        return {}, 0
    found = {term: 0 if seen.own is None else _frequency(index, seen.own, term) for term in terms}
    for owner in seen.owners:
        narrowing = _narrowed(index, seen, Filters(memories=True), owner)
        for term in found:
            found[term] += _n_shared(index, owner, term, narrowing)
    return found, total


def _n_shared(index: Connection, owner: int, term: str, narrowing: _Narrowing) -> int:
    """In how many of another owner's chunks that may be read a term stands; it stops counting at MOST_SHARED."""
    rows = _with_all(index, owner, text.query_terms(f'"{term}"'), narrowing, ("1", "", "LIMIT ?"), MOST_SHARED)
    return len(rows)


def naming(index: Connection, principal: Principal, name: str, *, filters: Filters, limit: int) -> list[Named]:
    """The newest chunks in which all words of a name stand in a row."""
    terms, seen = text.query_terms(f'"{name}"'), visible.of(index, principal)
    rows = [
        row
        for owner in seen.every
        for row in _with_all(index, owner, terms, _narrowed(index, seen, filters, owner), _NAMING, limit)
    ]
    return [Named._make(row[2:]) for row in sorted(rows, key=lambda row: (-row[0], row[1]))[:limit]]


def _since(started: float) -> float:
    return (time.perf_counter() - started) * 1000


def _narrow(index: Connection, filters: Filters, user: int) -> _Narrowing:
    total = max(1, index.rows("SELECT n_chunks FROM name WHERE id = ?", user)[0][0])
    words: list[str] = []
    tests: list[str] = []
    values: list[object] = []
    n_left: int | None = None
    for field in _NAMED:
        wanted = getattr(filters, field)
        if not wanted:
            continue
        found = counted(index, user, KIND_OF[field], wanted)
        if not found:
            return _Narrowing(nothing=True)
        if field in _FEW_NAMES and not _has_others(index, KIND_OF[field], found):
            continue
        n_of = sum(n for _, n in found)
        if n_of < total * _SELECTIVE_SHARE:
            n_left = n_of if n_left is None else min(n_left, n_of)
            words.append("(" + " OR ".join(scope_token(number) for number, _ in found) + ")")
        else:
            tests.append(f"chunk.{KIND_OF[field]} IN ({_marks(found)})")
            values += [number for number, _ in found]
    for tag in filters.tags:
        found = counted(index, user, "tag", (tag,))
        if not found:
            return _Narrowing(nothing=True)
        n_left = min(found[0][1], total if n_left is None else n_left)
        words.append(scope_token(found[0][0]))
    if filters.runs:
        tests.append("chunk.run IN (SELECT value FROM json_each(?))")
        values.append(json.dumps(runs_named(index, filters.runs)))
    if begun := runs_begun(filters):
        tests.append(f"chunk.run IN ({begun[0]})")
        values += begun[1]
    for test, extra in facet_tests(filters):
        tests.append(test)
        values += extra
    for column, at in ((">=", filters.since_at), ("<", filters.until_at)):
        if at is not None:
            tests.append(f"chunk.stated_ms {column} ?")
            values.append(ms(at))
    for live, number in held(index, filters):
        tests.append(f"NOT {_HELD}")
        values += _held_values(live, number)
    return _Narrowing(tuple(words), tuple(tests), tuple(values), n_left, without=_left_out(index, filters))


def _left_out(index: Connection, filters: Filters) -> str:
    """The word that all memories carry, where there are any and they are not asked for."""
    number = None if filters.memories else index.known("role", MEMORY)
    return scope_token(number) if number is not None else ""


def _has_others(index: Connection, kind: str, found: Sequence[tuple[int, int]]) -> bool:
    """Whether any chunk has another name of a kind than these."""
    query = f"SELECT EXISTS (SELECT 1 FROM name WHERE kind = ? AND n_chunks > 0 AND id NOT IN ({_marks(found)}))"
    return bool(index.rows(query, kind, *(number for number, _ in found))[0][0])


def turns_held(index: Connection, filters: Filters, turns: Sequence[int]) -> set[int]:
    """Those of these turns that a session which is going on holds."""
    query = f"SELECT DISTINCT turn FROM chunk WHERE turn IN ({_marks(turns)}) AND {_HELD}"
    sessions = held(index, filters)
    return {turn for each in sessions for (turn,) in index.rows(query, *turns, *_held_values(*each))}


def _held_values(live: Live, conversation: int) -> list[object]:
    """The values of `_HELD`."""
    return [conversation, _EVER_MS, 0 if live.since_at is None else ms(live.since_at)]


def held(index: Connection, filters: Filters) -> list[tuple[Live, int]]:
    """The sessions that are left out, each with its conversation's number, of those that the index knows."""
    found = ((live, index.known("conversation", live.conversation)) for live in filters.held)
    return [(live, number) for live, number in found if number is not None]


def _marks(items: Sized) -> str:
    return ", ".join("?" * len(items))


def numbers(index: Connection, kind: str, wanted: Sequence[str]) -> list[int]:
    """The numbers of the names of a kind that equal a wanted value or end in it as a path."""
    query = "SELECT id FROM name WHERE kind = ? AND (value = ? OR substr(value, -length(?)) = ?)"
    found: set[int] = set()
    for value in wanted:
        tail = "/" + value if kind == "project" else "\0"
        found.update(number for (number,) in index.rows(query, kind, value, tail, tail))
    return sorted(found)


def counted(index: Connection, user: int, kind: str, wanted: Sequence[str]) -> list[tuple[int, int]]:
    """As `numbers`, each with how many of an owner's chunks have it: nothing of another's shapes what they are told."""
    query = "SELECT coalesce((SELECT n_chunks FROM held WHERE user = ? AND name = ?), 0)"
    return [(number, index.rows(query, user, number)[0][0]) for number in numbers(index, kind, wanted)]


def runs_named(index: Connection, ids: Sequence[str]) -> list[int]:
    """The numbers of the runs of these ids that there are."""
    query = "SELECT id FROM run WHERE run_id IN (SELECT value FROM json_each(?))"
    return [number for (number,) in index.rows(query, json.dumps(ids))]


def runs_begun(filters: Filters) -> tuple[str, list[object]] | None:
    """(query, its values) of the runs that began within the stretch asked for, where one is."""
    stretch = ((">=", filters.begun_since_at), ("<", filters.begun_until_at))
    asked = [(f"started_ms {sign} ?", ms(at)) for sign, at in stretch if at is not None]
    if not asked:
        return None
    return f"SELECT id FROM run WHERE {' AND '.join(test for test, _ in asked)}", [at for _, at in asked]


def facet_tests(filters: Filters) -> list[tuple[str, list[object]]]:
    """(test of a chunk in SQL, its values) for each facet that is asked for."""
    asked = [(kind, getattr(filters, field)) for field, kind in _FACETS.items()]
    return [_facet_test(kind, wanted) for kind, wanted in asked if wanted]


def _facet_test(kind: str, wanted: Sequence[str]) -> tuple[str, list[object]]:
    """A test that the chunk's turn touched one of these files (by path or its end), tools, skills or entities."""
    each = "value = ? COLLATE NOCASE" if kind != "file" else "(value = ? OR substr(value, -length(?)) = ?)"
    values: list[object] = [kind]
    for value in wanted:
        values += [value] if kind != "file" else [value, "/" + value, "/" + value]
    alike = " OR ".join([each] * len(wanted))
    test = f"""chunk.turn IN (SELECT turn FROM turn_facet JOIN facet ON facet.id = turn_facet.facet
        WHERE kind = ? AND ({alike}))"""
    return test, values


def _plan(index: Connection, user: int, terms: Sequence[str], narrowing: _Narrowing) -> Plan:
    """What each term may do, given how often it occurs and how much the filters leave to rank."""
    total = index.rows("SELECT n_chunks FROM name WHERE id = ?", user)[0][0]
    budget = max(BUDGET_MIN, total * BUDGET_SHARE)
    n_left = total if narrowing.n_left is None else narrowing.n_left
    if n_left <= budget or len(terms) < 2:
        return Plan(tuple(terms))
    counts = {term: _frequency(index, user, term) for term in terms}
    return plan(counts, budget=budget * total / n_left, n_chunks=total)


def _frequency(index: Connection, user: int, term: str) -> int:
    """In how many chunks of the owner a term stands; for a phrase, the count of its rarest word."""
    words = index.tokens(term)
    query = f'SELECT doc FROM "vocab_{user}" WHERE term = ?'
    return min((next((int(row[0]) for row in index.rows(query, word)), 0) for word in words), default=0)


def _ranked(index: Connection, user: int, chosen: Plan, narrowing: _Narrowing, limit: int) -> list[Scored]:
    """The best chunks, best first. Equal scores are ordered by the chunk's tie number."""
    best: dict[int, Scored] = {}
    for expression in passes(chosen):
        _take(best, _candidates(index, user, expression, narrowing, limit))
    for expression in relaxed(chosen):
        if len({turn for _, turn, _, _ in best.values()}) >= limit:
            break
        _take(best, _candidates(index, user, expression, narrowing, limit))
    resort = last(chosen)
    if not best and resort:
        _take(best, _candidates(index, user, resort, narrowing, limit))
    return sorted(best.values(), key=lambda item: (-item.score, item.tie))


def _take(best: dict[int, Scored], found: Sequence[Scored]) -> None:
    for item in found:
        if item.chunk not in best or best[item.chunk].score < item.score:
            best[item.chunk] = item


def _candidates(index: Connection, user: int, expression: str, narrowing: _Narrowing, limit: int) -> list[Scored]:
    """The best chunks of one expression."""
    words = f'"words_{user}"'
    match = narrowing.match(expression)
    wanted = limit * _CHUNKS_PER_TURN
    if not narrowing.tests:
        rows = _unfiltered(index, words, match, wanted)
        if rows is not None:
            return rows
    tests = "".join(f" AND {test}" for test in narrowing.tests)
    query = f"""SELECT chunk.id, chunk.turn, -bm25({words}, 1.0, 0.0) AS score, tie FROM {words}
        CROSS JOIN chunk ON chunk.id = {words}.rowid
        WHERE {words} MATCH ?{tests} ORDER BY score DESC, tie LIMIT ?"""
    return [Scored._make(row) for row in index.rows(query, match, *narrowing.values, wanted)]


def _unfiltered(index: Connection, words: str, match: str, wanted: int) -> list[Scored] | None:
    """The best chunks without reading a row of every candidate; None when more tie at the cut than are fetched."""
    query = f"""SELECT rowid, -bm25({words}, 1.0, 0.0) AS score FROM {words} WHERE {words} MATCH ?
        ORDER BY score DESC LIMIT ?"""
    best = index.rows(query, match, wanted + _TIES)
    if len(best) > wanted:
        if len(best) == wanted + _TIES and best[-1][1] == best[wanted - 1][1]:
            return None
        best = [row for row in best if row[1] >= best[wanted - 1][1]]
    scores = dict(best)
    query = f"SELECT id, turn, tie FROM chunk WHERE id IN ({_marks(scores)})"
    rows = [Scored(row[0], row[1], scores[row[0]], row[2]) for row in index.rows(query, *scores)]
    return sorted(rows, key=lambda item: (-item.score, item.tie))[:wanted]


def _newest(index: Connection, user: int, narrowing: _Narrowing, limit: int) -> list[tuple[int, Scored]]:
    """(when it was said, chunk) of the newest chunks that the filters leave."""
    if narrowing.nothing:
        return []
    tests, values = ["chunk.user = ?", *narrowing.tests], [user, *narrowing.values]
    if narrowing.without:
        tests.append("chunk.turn > 0")
    if narrowing.words:
        words = f'"words_{user}"'
        tests.append(f"chunk.id IN (SELECT rowid FROM {words} WHERE {words} MATCH ?)")
        values.append(narrowing.scoped())
    query = f"""SELECT coalesce(stated_ms, 0), chunk.id, chunk.turn, 0.0, tie FROM chunk WHERE {" AND ".join(tests)}
        ORDER BY coalesce(stated_ms, 0) DESC, tie LIMIT ?"""
    return [(row[0], Scored._make(row[1:])) for row in index.rows(query, *values, limit * _CHUNKS_PER_TURN)]


def _best_of_turns(scored: Sequence[Scored], limit: int) -> list[tuple[int, float]]:
    """(chunk, score) of the best chunk of each turn, in the order given."""
    best: dict[int, tuple[int, float]] = {}
    for item in scored:
        best.setdefault(item.turn, (item.chunk, item.score))
    return list(best.values())[:limit]


def pieces(index: Connection, principal: Principal, turn_ids: Sequence[str]) -> dict[str, list[Hit]]:
    """The first pieces, masked and in order, of those of these turns that may be read."""
    query = f"""SELECT chunk.id FROM turn JOIN run ON run.id = turn.run JOIN chunk ON chunk.turn = turn.id
        WHERE turn_id IN (SELECT value FROM json_each(?)) AND chunk.n < ? AND {visible.of(index, principal).runs()}
        ORDER BY chunk.turn, chunk.n"""
    keys = [(key, 0.0) for (key,) in index.rows(query, json.dumps(list(turn_ids)), _PIECES)]
    found: dict[str, list[Hit]] = {}
    for hit in hits(index, keys):
        found.setdefault(hit.turn_id, []).append(hit if hit.user == principal.user else _masked(hit))
    return found


def hits(index: Connection, chosen: Sequence[tuple[int, float]]) -> list[Hit]:
    """Chunks with their scores as hits, in the order given."""
    scores = dict(chosen)
    query = f"""SELECT chunk.id, turn_id, run.run_id, conversation.value, iif(run.title <> '', run.title, run.intent),
          runtime.value, machine.value, agent.value, nullif(project.value, ''), turn.role, turn.author, kind.value,
          turn.stated_ms, chunk_text.text, turn.abandoned, turn.is_summary, owner.value, chunk.n
        FROM chunk JOIN chunk_text ON chunk_text.id = chunk.id JOIN turn ON turn.id = chunk.turn
          JOIN run ON run.id = turn.run JOIN name AS owner ON owner.id = run.user
          JOIN name AS kind ON kind.id = chunk.kind
          JOIN name AS conversation ON conversation.id = run.conversation
          JOIN name AS runtime ON runtime.id = run.runtime
          JOIN name AS machine ON machine.id = run.machine JOIN name AS agent ON agent.id = run.agent
          JOIN name AS project ON project.id = run.project
        WHERE chunk.id IN ({_marks(scores)})"""
    found = {}
    for key, *row in index.rows(query, *scores):
        at, said, abandoned, is_summary, user, n = row[11:]
        flags = bool(abandoned), bool(is_summary)
        found[key] = Hit(*row[:11], instant(at), said, scores[key], *flags, user=user, chunk=n)  # type: ignore[call-arg,misc]
    return [found[key] for key, _ in chosen]
