"""Search chunks by words within a budget: turn filters into SQL, score the chunks that hold the words, read the hits.

`match_plan` decides which terms make candidates (decisions/004). FTS5 scores them in passes; on a connection that is
asked often, `postings` adds up the same scores (decisions/070). A chunk that several passes find gets the best of its
scores, which is the score with every term that it holds.

Every read is limited to what the principal may read; where other owners share, hits have 1 / rank in
place of their scores. Vectors and the ranking of recall are not here.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from perdure import text
from perdure.access.redact import mask
from perdure.formats import call_text
from perdure.index import visibility
from perdure.index.encoding import MEMORY_KIND, from_ms, to_ms, to_scope_token
from perdure.index.match_plan import MatchPlan, build_last_resort, build_passes, build_relaxed_passes, plan_match
from perdure.index.store import IndexConnection, WordMatch
from perdure.index.visibility import ReadScope
from perdure.index.workflow_rows import AGENT_KIND
from perdure.types import Facets, Filters, Hit, Live, Principal, SearchResult

if TYPE_CHECKING:  # it imports numpy
    from perdure.index.postings import PlanScorer, ScoredChunks

# search -------------------------------------------------------------------------------------------------------

MAX_SHARED_COUNT = 1000  # largest count of the chunks of another owner, who shares them, that hold a word
MAX_FACET_CHUNKS = 20_000  # matching chunks over which facets are counted: 30 ms
BUDGET_SHARE = 0.02  # chunks that one query may rank, as a share of the owner's (decisions/004, docs/evaluation)
BUDGET_MIN = 3000  # lower bound of that budget
MAX_LISTED_CHUNKS = 200_000  # with the common terms of a query; a list of 94,000 places takes 7.5 ms
_SELECTIVE_SHARE = 0.1  # a filter that leaves less than this becomes a word inside MATCH
_N_EXTRA = 200  # extra chunks to fetch: some tie, and some do not pass the tests
_IS_IN_SESSION = "(chunk.conversation = ? AND coalesce(chunk.stated_ms, ?) >= ?)"  # in a live session
_TIME_OF_UNDATED_MS = 2**62  # stands for a missing time in that test: an undated chunk counts as in the context
_CHUNKS_PER_TURN = 4  # best chunks fetched per wanted turn: long turns match more than once
_MAX_CHUNKS_SHOWN = 20  # of one turn
_NAME_FILTERS = ("projects", "conversations", "runtimes", "machines", "agents", "roles", "kinds")
_SMALL_NAME_FILTERS = ("roles", "kinds")  # often name every value there is; then the filter is left out
KIND_BY_FILTER = {name: name.removesuffix("s") for name in _NAME_FILTERS}
_FACET_KIND_BY_FILTER = {
    "files": "file", "tools": "tool", "skills": "skill", "entities": "entity", "workflow_agents": AGENT_KIND,
}  # fmt: skip


_Pass = TypeVar("_Pass")


class _FilterSql(Struct, frozen=True):
    """Filters as SQL: words for MATCH, tests for WHERE with their values.

    `matches_nothing` is True when no chunk can match, `leaves_few` when the tests may leave few of the matching ones.
    """

    words: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    values: tuple[object, ...] = ()
    n_left: int | None = None  # upper bound of the chunks that pass the words; None without words
    matches_nothing: bool = False
    leaves_few: bool = False
    excluded_word: str = ""  # the word of chunks to leave out: memories, when only turns are wanted

    def build_match(self, expression: str) -> str:
        """Return the MATCH of an expression over texts, narrowed by the filters."""
        scope_match = f" AND scope : ({' AND '.join(self.words)})" if self.words else ""
        return f"(text : ({expression}){scope_match})" + (
            f" NOT scope : {self.excluded_word}" if self.excluded_word else ""
        )

    def build_scope_match(self) -> str:
        """Return the MATCH of the filters alone; "" when no filter is a word."""
        return f"scope : ({' AND '.join(self.words)})" if self.words else ""


class ScoredChunk(NamedTuple):
    """A chunk that a query found, with its score."""

    chunk: int
    turn: int
    score: float
    tie: int


class NameMatch(NamedTuple):
    """A chunk that holds the words of a name."""

    chunk: int
    turn: int
    text: str


def search(index: IndexConnection, principal: Principal, query: str, *, filters: Filters, limit: int) -> SearchResult:
    """Return the best turns for a query, best first; for a query without words, the newest turns that the
    filters leave.
    """
    started_s = time.perf_counter()
    with index.begin_read():
        result = find_candidates(index, principal, query, filters=filters, limit=limit)
        readable_hits = hide_shared_scores(
            index, principal, read_hits(index, _take_best_per_turn(result.scored, limit))
        )
    took_ms = (time.perf_counter() - started_s) * 1000
    return SearchResult(readable_hits, terms=result.terms, dropped=result.dropped, took_ms=took_ms)


def hide_shared_scores(index: IndexConnection, principal: Principal, scored_hits: Sequence[Hit]) -> tuple[Hit, ...]:
    """Return hits as the principal may see them: where other owners share, scores are replaced by 1 / rank.

    BM25 counts the chunks of an owner in which a word stands, private ones included, so the score would
    reveal them.
    """
    if not visibility.get_read_scope(index, principal).other_owners:
        return tuple(scored_hits)
    ranked = (
        replace(hit, score=1 / rank if hit.score else 0.0, legs_score=None)
        for rank, hit in enumerate(scored_hits, start=1)
    )
    return tuple(hit if hit.user == principal.user else _mask_hit(hit) for hit in ranked)


def _mask_hit(hit: Hit) -> Hit:
    """Mask the names in a hit of another owner."""
    return replace(
        hit,
        keyword_score=None,
        conversation=mask(hit.conversation),
        title=mask(hit.title),
        project=mask(hit.project) if hit.project else hit.project,
    )


class KeywordCandidates(Struct, frozen=True):
    """The result of a search by words."""

    scored: Sequence[ScoredChunk] = ()  # the best chunks, best first
    terms: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


def find_candidates(
    index: IndexConnection, principal: Principal, query: str, *, filters: Filters, limit: int
) -> KeywordCandidates:
    """Return chunks of at least `limit` turns, if so many match; inside the caller's snapshot."""
    read_scope = visibility.get_read_scope(index, principal)
    terms = text.without_stopwords(text.query_terms(query))
    if not terms:
        newest = [
            row
            for owner in read_scope.all_owners
            for row in _select_newest(index, owner, _build_owner_filter(index, read_scope, filters, owner), limit)
        ]
        return KeywordCandidates([scored for _, scored in sorted(newest, key=lambda row: (-row[0], row[1].tie))])
    results = [
        _find_for_owner(index, owner, terms, _build_owner_filter(index, read_scope, filters, owner), limit)
        for owner in read_scope.all_owners
    ]
    if len(results) < 2 and not read_scope.other_owners:
        return results[0] if results else KeywordCandidates()
    best_chunks = sorted(
        (item for result in results for item in result.scored), key=lambda item: (-item.score, item.tie)
    )
    return KeywordCandidates(best_chunks, terms, results[0].dropped if read_scope.own_user is not None else ())


def _find_for_owner(
    index: IndexConnection, owner: int, terms: Sequence[str], owner_filter: _FilterSql, limit: int
) -> KeywordCandidates:
    """Find candidates among the chunks of one owner."""
    if owner_filter.matches_nothing:
        return KeywordCandidates()
    match_plan = _plan_terms(index, owner, terms, owner_filter)
    return KeywordCandidates(
        _rank_chunks(index, owner, match_plan, owner_filter, limit), tuple(terms), match_plan.dropped
    )


def _build_owner_filter(index: IndexConnection, read_scope: ReadScope, filters: Filters, owner: int) -> _FilterSql:
    """Return the filters for the table of one owner; for another owner's table, with the test of what may be
    read.
    """
    base_filter = _build_filter(index, filters, owner)
    if owner == read_scope.own_user:
        return base_filter
    words = read_scope.words.get(owner, ())
    if not words:
        return replace(base_filter, tests=(*base_filter.tests, visibility.CHUNK_IS_READABLE), leaves_few=True)
    n_left = (
        read_scope.n_words[owner] if base_filter.n_left is None else min(base_filter.n_left, read_scope.n_words[owner])
    )
    word_group = f"({' OR '.join(words)})"
    return replace(
        base_filter,
        words=(*base_filter.words, word_group),
        tests=(*base_filter.tests, visibility.CHUNK_IS_READABLE),
        n_left=n_left,
    )


def find_turns_with_all_words(
    index: IndexConnection, principal: Principal, query: str, *, filters: Filters
) -> list[str]:
    """Return the ids of all the principal's own turns that hold every word of the query, however many there
    are.
    """
    with index.begin_read():
        user = index.find_name("user", principal.user)  # never what others share: the turns found here are forgotten
        if user is None:
            return []
        owner_filter = _build_filter(index, filters, user)
        return [
            turn_id
            for (turn_id,) in _select_with_all_terms(index, user, text.query_terms(query), owner_filter, _TURN_ID_PARTS)
        ]


def build_chunk_filter(
    index: IndexConnection, read_scope: ReadScope, filters: Filters, owner: int
) -> tuple[str, list[str], list[object]] | None:
    """Return (expression over the scope of chunks or "", tests of `chunk`, their values); None: no chunk passes."""
    owner_filter = _build_owner_filter(index, read_scope, filters, owner)
    if owner_filter.matches_nothing:
        return None
    tests = [*owner_filter.tests, *(["chunk.turn > 0"] if owner_filter.excluded_word else [])]
    return owner_filter.build_scope_match(), tests, list(owner_filter.values)


# facets -------------------------------------------------------------------------------------------------------


def count_facets(index: IndexConnection, principal: Principal, query: str, *, filters: Filters) -> Facets:
    """Count the turns that match by runtime, machine, project, tag, agent, role and kind.

    A turn matches when it holds any word of the query that the search ranks by. At most MAX_FACET_CHUNKS
    chunks are counted, those captured first; when there are more, the answer says that it is partial.
    """
    with index.begin_read():
        read_scope = visibility.get_read_scope(index, principal)
        filters = replace(filters, memories=False)
        expression = _build_facet_expression(
            index, read_scope, text.without_stopwords(text.query_terms(query)), filters
        )
        n_turns: dict[str, Counter[int]] = {part: Counter() for part in _FACET_PARTS}
        is_partial = False
        for owner in read_scope.all_owners:
            rows = _count_turns_by_part(
                index, owner, expression, _build_owner_filter(index, read_scope, filters, owner)
            )
            for part, number, n, _ in rows:
                n_turns[part][number] += n
            is_partial = is_partial or sum(n for part, *_, n in rows if part == "run") >= MAX_FACET_CHUNKS
        return Facets(_count_by_value(index, n_turns), is_partial)


def _build_facet_expression(
    index: IndexConnection, read_scope: ReadScope, terms: Sequence[str], filters: Filters
) -> str:
    """Return the expression of all terms that rank among the principal's own chunks; "" when there are none."""
    if not terms or read_scope.own_user is None:
        return " OR ".join(map(text.fts_quote, terms))
    match_plan = _plan_terms(index, read_scope.own_user, terms, _build_filter(index, filters, read_scope.own_user))
    return " OR ".join(map(text.fts_quote, (term for term in terms if term not in match_plan.dropped)))


def _count_turns_by_part(
    index: IndexConnection, user: int, expression: str, owner_filter: _FilterSql
) -> list[tuple[str, int, int, int]]:
    """Return (part, number of a run, role or kind, number of matching turns, number of matching chunks)."""
    if owner_filter.matches_nothing:
        return []
    source, where, values = (
        "chunk",
        ["chunk.user = ?", "chunk.turn > 0", *owner_filter.tests],
        [user, *owner_filter.values],
    )
    match = owner_filter.build_match(expression) if expression else owner_filter.build_scope_match()
    if match:
        words = index.match_words(user, match)
        source = f"{words.source} CROSS JOIN chunk ON chunk.id = {words.chunk}"
        where, values = [words.test, *where], [*words.values, *values]
    counts_query = " UNION ALL ".join(
        f"SELECT '{part}', {part}, count(DISTINCT turn), count(*) FROM found GROUP BY {part}" for part in _FACET_PARTS
    )
    query = f"""WITH found AS MATERIALIZED (SELECT chunk.run, chunk.turn, chunk.role, chunk.kind FROM {source}
        WHERE {" AND ".join(where)} LIMIT ?) {counts_query}"""
    return index.select(query, *values, MAX_FACET_CHUNKS)


_FACET_PARTS = ("run", "role", "kind")
_NAMES_OF_RUNS = """SELECT run.id, runtime.value, machine.value, project.value, agent.value
  FROM run JOIN name AS runtime ON runtime.id = run.runtime JOIN name AS machine ON machine.id = run.machine
    JOIN name AS project ON project.id = run.project JOIN name AS agent ON agent.id = run.agent
  WHERE run.id IN (SELECT CAST(value AS BIGINT) FROM json_each(?))"""
_TAGS_OF_RUNS = """SELECT run, value FROM run_tag JOIN name ON name.id = tag
  WHERE run IN (SELECT CAST(value AS BIGINT) FROM json_each(?))"""
_FACET_NAMES = ("runtime", "machine", "project", "agent")


def _count_by_value(index: IndexConnection, by_part: Mapping[str, Mapping[int, int]]) -> dict[str, dict[str, int]]:
    """Return facet -> value -> turns, most first, from the turns of each run, role and kind."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in (*_FACET_NAMES, "tag", "role", "kind")}
    n_turns = by_part["run"]
    run_numbers = json.dumps(list(n_turns))
    for run_number, *values in index.select(_NAMES_OF_RUNS, run_numbers):
        for name, value in zip(_FACET_NAMES, values, strict=True):
            counts[name][value] += n_turns[run_number]
    for run_number, tag in index.select(_TAGS_OF_RUNS, run_numbers):
        counts["tag"][tag] += n_turns[run_number]
    for part in ("role", "kind"):
        query = "SELECT id, value FROM name WHERE id IN (SELECT CAST(value AS BIGINT) FROM json_each(?))"
        for name_number, value in index.select(query, json.dumps(list(by_part[part]))):
            counts[part][value] += by_part[part][name_number]
    return {
        name: dict(sorted(value_counts.items(), key=lambda item: (-item[1], item[0])))
        for name, value_counts in counts.items()
    }


# terms and names ----------------------------------------------------------------------------------------------

_TURN_ID_PARTS = ("DISTINCT turn_id", "JOIN turn ON turn.id = chunk.turn", "ORDER BY turn_id")
_NAME_MATCH_PARTS = (
    "coalesce(chunk.stated_ms, 0), tie, chunk.id, chunk.turn, chunk_text.text",
    "JOIN chunk_text ON chunk_text.id = chunk.id",
    "ORDER BY coalesce(chunk.stated_ms, 0) DESC, tie LIMIT ?",
)  # fmt: skip


def _select_with_all_terms(
    index: IndexConnection, user: int, terms: Sequence[str], owner_filter: _FilterSql, parts: tuple[str, str, str],
    *last_values: object,
) -> list[tuple[Any, ...]]:  # fmt: skip
    """Return rows of an owner's chunks that hold every term. parts: columns, joins, order; last_values: values
    after those of the filters.
    """
    if owner_filter.matches_nothing or not terms:
        return []
    columns, joins, order_clause = parts
    words = index.match_words(user, owner_filter.build_match(" AND ".join(map(text.fts_quote, terms))))
    tests = "".join(f" AND {test}" for test in owner_filter.tests)
    query = f"""SELECT {columns} FROM {words.source} CROSS JOIN chunk ON chunk.id = {words.chunk} {joins}
        WHERE {words.test}{tests} {order_clause}"""
    return index.select(query, *words.values, *owner_filter.values, *last_values)


def count_term_frequencies(
    index: IndexConnection, principal: Principal, terms: Iterable[str]
) -> tuple[dict[str, int], int]:
    """Return (term -> number of the principal's chunks that hold it, number of all these chunks).

    Readable chunks of other owners are counted too, at most MAX_SHARED_COUNT of each owner.
    """
    read_scope = visibility.get_read_scope(index, principal)
    total = read_scope.n_turns
    if read_scope.own_user is not None:
        total += int(index.select("SELECT n_chunks FROM name WHERE id = ?", read_scope.own_user)[0][0])
    elif not read_scope.other_owners:
        return {}, 0
    terms = list(terms)
    counts = dict.fromkeys(terms, 0) if read_scope.own_user is None else _count_terms(index, read_scope.own_user, terms)
    for owner in read_scope.other_owners:
        owner_filter = _build_owner_filter(index, read_scope, Filters(memories=True), owner)
        for term in counts:
            counts[term] += _count_shared_chunks(index, owner, term, owner_filter)
    return counts, total


def _count_shared_chunks(index: IndexConnection, owner: int, term: str, owner_filter: _FilterSql) -> int:
    """Count another owner's readable chunks that hold a term; stop at MAX_SHARED_COUNT."""
    rows = _select_with_all_terms(
        index, owner, text.query_terms(f'"{term}"'), owner_filter, ("chunk.id", "", "LIMIT ?"), MAX_SHARED_COUNT
    )
    return len(rows)


def find_name_matches(
    index: IndexConnection, principal: Principal, name: str, *, filters: Filters, limit: int
) -> list[NameMatch]:
    """Return the newest chunks that hold all words of a name, next to each other."""
    terms, read_scope = text.query_terms(f'"{name}"'), visibility.get_read_scope(index, principal)
    rows = [
        row
        for owner in read_scope.all_owners
        for row in _select_with_all_terms(
            index, owner, terms, _build_owner_filter(index, read_scope, filters, owner), _NAME_MATCH_PARTS, limit
        )
    ]
    return [NameMatch._make(row[2:]) for row in sorted(rows, key=lambda row: (-row[0], row[1]))[:limit]]


# filters ------------------------------------------------------------------------------------------------------


def _build_filter(index: IndexConnection, filters: Filters, user: int) -> _FilterSql:
    total = max(1, index.select("SELECT n_chunks FROM name WHERE id = ?", user)[0][0])
    words: list[str] = []
    tests: list[str] = []
    values: list[object] = []
    n_left: int | None = None
    for field in _NAME_FILTERS:
        filter_values = getattr(filters, field)
        if not filter_values:
            continue
        name_counts = count_name_chunks(index, user, KIND_BY_FILTER[field], filter_values)
        if not name_counts:
            return _FilterSql(matches_nothing=True)
        if field in _SMALL_NAME_FILTERS and not _has_other_names(index, KIND_BY_FILTER[field], name_counts):
            continue
        n_with_names = sum(n for _, n in name_counts)
        if n_with_names < total * _SELECTIVE_SHARE:
            n_left = n_with_names if n_left is None else min(n_left, n_with_names)
            words.append("(" + " OR ".join(to_scope_token(number) for number, _ in name_counts) + ")")
        else:
            tests.append(f"chunk.{KIND_BY_FILTER[field]} IN ({_build_marks(name_counts)})")
            values += [number for number, _ in name_counts]
    for tag in filters.tags:
        name_counts = count_name_chunks(index, user, "tag", (tag,))
        if not name_counts:
            return _FilterSql(matches_nothing=True)
        n_left = min(name_counts[0][1], total if n_left is None else n_left)
        words.append(to_scope_token(name_counts[0][0]))
    n_name_tests = len(tests)  # each leaves a tenth or more
    if filters.runs:
        tests.append("chunk.run IN (SELECT CAST(value AS BIGINT) FROM json_each(?))")
        values.append(json.dumps(find_run_numbers(index, filters.runs)))
    if begun_query := build_begun_query(filters):
        tests.append(f"chunk.run IN ({begun_query[0]})")
        values += begun_query[1]
    for test, extra_values in build_facet_tests(filters):
        tests.append(test)
        values += extra_values
    for operator, instant in ((">=", filters.since_at), ("<", filters.until_at)):
        if instant is not None:
            tests.append(f"chunk.stated_ms {operator} ?")
            values.append(to_ms(instant))
    leaves_few = len(tests) > n_name_tests
    for session, number in list_excluded_sessions(index, filters):
        tests.append(f"NOT {_IS_IN_SESSION}")
        values += _list_session_values(session, number)
    excluded_word = _choose_excluded_word(index, filters)
    return _FilterSql(
        tuple(words), tuple(tests), tuple(values), n_left, leaves_few=leaves_few, excluded_word=excluded_word
    )


def _choose_excluded_word(index: IndexConnection, filters: Filters) -> str:
    """Return the word that all memories carry, if there are any and they are not wanted; else ""."""
    number = None if filters.memories else index.find_name("role", MEMORY_KIND)
    return to_scope_token(number) if number is not None else ""


def _has_other_names(index: IndexConnection, kind: str, name_counts: Sequence[tuple[int, int]]) -> bool:
    """Return True if any chunk has a name of this kind that is not among these."""
    marks = _build_marks(name_counts)
    query = f"SELECT EXISTS (SELECT 1 FROM name WHERE kind = ? AND n_chunks > 0 AND id NOT IN ({marks}))"
    return bool(index.select(query, kind, *(number for number, _ in name_counts))[0][0])


def find_turns_in_sessions(index: IndexConnection, filters: Filters, turns: Sequence[int]) -> set[int]:
    """Return those of these turns that stand in the context of a session that goes on."""
    query = f"SELECT DISTINCT turn FROM chunk WHERE turn IN ({{}}) AND {_IS_IN_SESSION}"
    sessions = list_excluded_sessions(index, filters)
    return {turn for session in sessions for (turn,) in index.select_in(query, turns, *_list_session_values(*session))}


def _list_session_values(session: Live, conversation: int) -> list[object]:
    """Return the values of `_IS_IN_SESSION`."""
    return [conversation, _TIME_OF_UNDATED_MS, 0 if session.since_at is None else to_ms(session.since_at)]


def list_excluded_sessions(index: IndexConnection, filters: Filters) -> list[tuple[Live, int]]:
    """Return the sessions whose turns are left out, each with its conversation's number, if the index has it."""
    numbered_sessions = ((session, index.find_name("conversation", session.conversation)) for session in filters.held)
    return [(session, number) for session, number in numbered_sessions if number is not None]


def _build_marks(items: Sized) -> str:
    return ", ".join("?" * len(items))


def find_name_numbers(index: IndexConnection, kind: str, filter_values: Sequence[str]) -> list[int]:
    """Return the numbers of the names of a kind that equal a value or, for a project, end in it as a path."""
    query = "SELECT id FROM name WHERE kind = ? AND (value = ? OR substr(value, length(value) - length(?) + 1) = ?)"
    found_numbers: set[int] = set()
    for value in filter_values:
        path_end = "/" + value if kind == "project" else "\0"
        found_numbers.update(number for (number,) in index.select(query, kind, value, path_end, path_end))
    return sorted(found_numbers)


def count_name_chunks(
    index: IndexConnection, user: int, kind: str, filter_values: Sequence[str]
) -> list[tuple[int, int]]:
    """Return (number, number of the owner's chunks) of the names that `find_name_numbers` finds.

    Counts of other owners change nothing in what a principal sees.
    """
    query = "SELECT coalesce((SELECT n_chunks FROM held WHERE user = ? AND name = ?), 0)"
    return [
        (number, index.select(query, user, number)[0][0]) for number in find_name_numbers(index, kind, filter_values)
    ]


def find_run_numbers(index: IndexConnection, run_ids: Sequence[str]) -> list[int]:
    """Return the numbers of the runs with these ids; ids of no run are left out."""
    query = "SELECT id FROM run WHERE run_id IN (SELECT value FROM json_each(?))"
    return [number for (number,) in index.select(query, json.dumps(run_ids))]


def build_begun_query(filters: Filters) -> tuple[str, list[object]] | None:
    """Return (query, its values) for the runs that began in the range of the filters; None without such a
    range.
    """
    bounds = ((">=", filters.begun_since_at), ("<", filters.begun_until_at))
    tests = [(f"started_ms {operator} ?", to_ms(instant)) for operator, instant in bounds if instant is not None]
    if not tests:
        return None
    return f"SELECT id FROM run WHERE {' AND '.join(test for test, _ in tests)}", [instant for _, instant in tests]


def build_facet_tests(filters: Filters) -> list[tuple[str, list[object]]]:
    """Return (test of a chunk in SQL, its values) for each facet in the filters."""
    filter_values = [(kind, getattr(filters, field)) for field, kind in _FACET_KIND_BY_FILTER.items()]
    return [_build_facet_test(kind, values) for kind, values in filter_values if values]


def _build_facet_test(kind: str, names: Sequence[str]) -> tuple[str, list[object]]:
    """Return a test that the chunk's turn has one of these files (by path or its end), tools, skills or
    entities.
    """
    name_test = "lower(facet.value) IN (SELECT lower(value) FROM json_each(?))"
    if kind == "file":
        name_test = """EXISTS (SELECT 1 FROM json_each(?) AS named WHERE facet.value = named.value
          OR substr(facet.value, length(facet.value) - length(named.value)) = '/' || named.value)"""
    test = f"""chunk.turn IN (SELECT turn FROM turn_facet JOIN facet ON facet.id = turn_facet.facet
        WHERE facet.kind = ? AND {name_test})"""
    return test, [kind, json.dumps(list(names))]


# passes -------------------------------------------------------------------------------------------------------


def _plan_terms(index: IndexConnection, user: int, terms: Sequence[str], owner_filter: _FilterSql) -> MatchPlan:
    """Group the terms by how often each occurs and how many chunks the filters leave to rank."""
    total = index.select("SELECT n_chunks FROM name WHERE id = ?", user)[0][0]
    budget = max(BUDGET_MIN, total * BUDGET_SHARE)
    n_left = total if owner_filter.n_left is None else owner_filter.n_left
    if n_left <= budget or len(terms) < 2:
        return MatchPlan(tuple(terms))
    counts = _count_terms(index, user, terms)
    return plan_match(counts, budget=budget * total / n_left, n_chunks=total)


def _count_terms(index: IndexConnection, user: int, terms: Iterable[str]) -> dict[str, int]:
    """Count the owner's chunks that hold each term; for a phrase, those that hold its rarest word."""
    tokens_by_term = {term: index.tokenize(text.fts_quote(term)) for term in terms}
    counts = index.count_chunks_with(user, [token for tokens in tokens_by_term.values() for token in tokens])
    return {term: min((counts[token] for token in tokens), default=0) for term, tokens in tokens_by_term.items()}


def _rank_chunks(
    index: IndexConnection, user: int, match_plan: MatchPlan, owner_filter: _FilterSql, limit: int
) -> list[ScoredChunk]:
    """Return the best chunks, best first. Equal scores are ordered by the chunk's tie number."""
    scorer = _open_scorer(index, user, match_plan, owner_filter)
    if scorer:
        take = partial(_take_best_chunks, index, owner_filter, limit)
        return _run_passes([scorer.score_first()], scorer.score_relaxed(), scorer.score_last(), take, limit)
    return _run_passes(
        build_passes(match_plan),
        build_relaxed_passes(match_plan),
        build_last_resort(match_plan),
        partial(_select_best_chunks, index, user, owner_filter, limit),
        limit,
    )


def _open_scorer(
    index: IndexConnection, user: int, match_plan: MatchPlan, owner_filter: _FilterSql
) -> PlanScorer | None:
    """Return what scores in arrays; None where FTS5 is faster.

    FTS5 is faster on a connection that asks once, where a filter leaves few chunks or has to be tested on all of them,
    and where common terms stand in so many chunks that it should pass over most of them.
    """
    if owner_filter.words or owner_filter.leaves_few or not index.count_scoring():
        return None
    if sum(_count_terms(index, user, match_plan.common).values()) > MAX_LISTED_CHUNKS:
        return None
    from perdure.index import postings  # numpy

    return postings.open_scorer(index, user, match_plan)


def _run_passes(
    first: Iterable[_Pass], relaxed: Iterable[_Pass], last_resort: _Pass | None,
    select: Callable[[_Pass], list[ScoredChunk]], limit: int
) -> list[ScoredChunk]:  # fmt: skip
    """Return what passes find, best first. A pass is an expression of FTS5, or the scores of its chunks.

    relaxed: run while fewer than `limit` turns are found. last_resort: run when nothing is.
    """
    best: dict[int, ScoredChunk] = {}
    for search_pass in first:
        _merge_best(best, select(search_pass))
    for search_pass in relaxed:
        if len({item.turn for item in best.values()}) >= limit:
            break
        _merge_best(best, select(search_pass))
    if not best and last_resort:
        _merge_best(best, select(last_resort))
    return sorted(best.values(), key=lambda item: (-item.score, item.tie))


def _merge_best(best: dict[int, ScoredChunk], scored_chunks: Sequence[ScoredChunk]) -> None:
    for item in scored_chunks:
        if item.chunk not in best or best[item.chunk].score < item.score:
            best[item.chunk] = item


def _take_best_chunks(
    index: IndexConnection, owner_filter: _FilterSql, limit: int, scored: ScoredChunks
) -> list[ScoredChunk]:
    """Return the best of the chunks that were scored in arrays."""
    tests = [*owner_filter.tests, *(["chunk.turn > 0"] if owner_filter.excluded_word else [])]
    n_all = len(scored.chunks)
    for n in (2 * limit, limit * _CHUNKS_PER_TURN + _N_EXTRA, n_all):
        best_rows = scored.list_best(min(n, n_all))
        found = _read_best(index, best_rows, tests, owner_filter.values, limit, is_all=n >= n_all)
        if found is not None:
            return found
    return []


def _select_best_chunks(
    index: IndexConnection, user: int, owner_filter: _FilterSql, limit: int, expression: str
) -> list[ScoredChunk]:
    """Return the best chunks for one expression."""
    words = index.match_words(user, owner_filter.build_match(expression))
    n_wanted = limit * _CHUNKS_PER_TURN
    if not owner_filter.leaves_few:
        found = _select_from_best(index, words, owner_filter, limit)
        if found is not None:
            return found
    tests = "".join(f" AND {test}" for test in owner_filter.tests)
    query = f"""SELECT chunk.id, chunk.turn, {words.score} AS score, tie FROM {words.source}
        CROSS JOIN chunk ON chunk.id = {words.chunk}
        WHERE {words.test}{tests} ORDER BY score DESC, tie LIMIT ?"""
    return [ScoredChunk._make(row) for row in index.select(query, *words.values, *owner_filter.values, n_wanted)]


def _select_from_best(
    index: IndexConnection, words: WordMatch, owner_filter: _FilterSql, limit: int
) -> list[ScoredChunk] | None:
    """Return the best chunks without reading a row of every candidate; None if these may not be all of them."""
    query = f"""SELECT {words.chunk}, {words.score} AS score FROM {words.source} WHERE {words.test}
        ORDER BY score DESC LIMIT ?"""
    n_fetched = limit * _CHUNKS_PER_TURN + _N_EXTRA
    best_rows = index.select(query, *words.values, n_fetched)
    is_all = len(best_rows) < n_fetched
    if not is_all:  # others may tie with the last
        best_rows = [row for row in best_rows if row[1] > best_rows[-1][1]]
    return _read_best(index, best_rows, owner_filter.tests, owner_filter.values, limit, is_all=is_all)


def _read_best(
    index: IndexConnection,
    best_rows: Sequence[tuple[int, float]],
    tests: Sequence[str],
    values: Sequence[object],
    limit: int,
    *,
    is_all: bool,
) -> list[ScoredChunk] | None:
    """Return those of the best chunks that pass the tests: _CHUNKS_PER_TURN for each of `limit` turns, or those of
    `limit` turns.

    best_rows: (chunk, score), best first. None when too few of them pass, and they are not all.
    """
    n_wanted = limit * _CHUNKS_PER_TURN
    query = f"SELECT id, turn, tie FROM chunk WHERE id IN ({{}}){''.join(f' AND {test}' for test in tests)}"
    found: list[ScoredChunk] = []
    n_read, is_enough = 0, False
    while n_read < len(best_rows) and not is_enough:
        last_score = best_rows[min(n_read + limit + limit // 4, len(best_rows)) - 1][1]
        scores = {chunk: score for chunk, score in best_rows[n_read:] if score >= last_score}  # with all ties
        n_read += len(scores)
        rows = index.select_in(query, list(scores), *values)
        scored = [ScoredChunk(chunk, turn, scores[chunk], tie) for chunk, turn, tie in rows]
        found += sorted(scored, key=lambda item: (-item.score, item.tie))
        is_enough = len(found) >= n_wanted or len({item.turn for item in found}) >= limit
    return found[:n_wanted] if is_all or is_enough else None


def _select_newest(
    index: IndexConnection, user: int, owner_filter: _FilterSql, limit: int
) -> list[tuple[int, ScoredChunk]]:
    """Return (time of the turn, chunk) of the newest chunks that the filters leave."""
    if owner_filter.matches_nothing:
        return []
    tests, values = ["chunk.user = ?", *owner_filter.tests], [user, *owner_filter.values]
    if owner_filter.excluded_word:
        tests.append("chunk.turn > 0")
    if owner_filter.words:
        words = index.match_words(user, owner_filter.build_scope_match())
        tests.append(f"chunk.id IN (SELECT {words.chunk} FROM {words.source} WHERE {words.test})")
        values += words.values
    query = f"""SELECT coalesce(stated_ms, 0), chunk.id, chunk.turn, 0.0, tie FROM chunk WHERE {" AND ".join(tests)}
        ORDER BY coalesce(stated_ms, 0) DESC, tie LIMIT ?"""
    return [(row[0], ScoredChunk._make(row[1:])) for row in index.select(query, *values, limit * _CHUNKS_PER_TURN)]


# hits ---------------------------------------------------------------------------------------------------------


def _take_best_per_turn(scored: Sequence[ScoredChunk], limit: int) -> list[tuple[int, float]]:
    """Return (chunk, score) of the best chunk of each turn, in the order given."""
    best: dict[int, tuple[int, float]] = {}
    for item in scored:
        best.setdefault(item.turn, (item.chunk, item.score))
    return list(best.values())[:limit]


def describe_calls(index: IndexConnection, hits: Sequence[Hit]) -> tuple[Hit, ...]:
    """Return the hits as their reader sees them: tool calls in words."""
    before = read_text_before(index, hits)
    return tuple(
        replace(
            hit, text=call_text.describe_calls(hit.text, hit.project, before=before.get((hit.turn_id, hit.chunk), ""))
        )
        if hit.kind == "call"
        else hit
        for hit in hits
    )


def read_text_before(index: IndexConnection, hits: Iterable[Hit]) -> dict[tuple[str, int], str]:
    """Return, for each of these hits that begins inside a tool call, the earlier chunks of calls of its turn."""
    cut_hits = [hit for hit in hits if hit.kind == "call" and hit.chunk and call_text.is_cut_call(hit.text)]
    if not cut_hits:
        return {}
    query = """SELECT turn_id, chunk.n, chunk_text.text FROM turn JOIN chunk ON chunk.turn = turn.id
        JOIN chunk_text ON chunk_text.id = chunk.id
        WHERE turn_id IN (SELECT value FROM json_each(?)) AND chunk.kind = ? ORDER BY chunk.n"""
    rows = index.select(query, json.dumps([hit.turn_id for hit in cut_hits]), index.find_name("kind", "call"))
    return {
        (hit.turn_id, hit.chunk): "".join(text for turn_id, n, text in rows if turn_id == hit.turn_id and n < hit.chunk)
        for hit in cut_hits
    }


def list_first_chunks(index: IndexConnection, principal: Principal, turn_ids: Sequence[str]) -> dict[str, list[Hit]]:
    """Return the first chunks, masked and in order, of those of these turns that may be read."""
    query = f"""SELECT chunk.id FROM turn JOIN run ON run.id = turn.run JOIN chunk ON chunk.turn = turn.id
        WHERE turn_id IN (SELECT value FROM json_each(?)) AND chunk.n < ?
            AND {visibility.get_read_scope(index, principal).build_run_test()}
        ORDER BY chunk.turn, chunk.n"""
    chunk_scores = [(chunk, 0.0) for (chunk,) in index.select(query, json.dumps(list(turn_ids)), _MAX_CHUNKS_SHOWN)]
    hits_by_turn: dict[str, list[Hit]] = {}
    for hit in read_hits(index, chunk_scores):
        hits_by_turn.setdefault(hit.turn_id, []).append(hit if hit.user == principal.user else _mask_hit(hit))
    return hits_by_turn


def read_hits(index: IndexConnection, chunk_scores: Sequence[tuple[int, float]]) -> list[Hit]:
    """Read chunks with their scores as hits, in the order given."""
    scores = dict(chunk_scores)
    query = """SELECT chunk.id, turn_id, run.run_id, conversation.value, coalesce(nullif(run.title, ''), run.intent),
          runtime.value, machine.value, agent.value, nullif(project.value, ''), turn.role, turn.author, kind.value,
          turn.stated_ms, chunk_text.text, turn.abandoned, turn.is_summary, owner.value, chunk.n
        FROM chunk JOIN chunk_text ON chunk_text.id = chunk.id JOIN turn ON turn.id = chunk.turn
          JOIN run ON run.id = turn.run JOIN name AS owner ON owner.id = run.user
          JOIN name AS kind ON kind.id = chunk.kind
          JOIN name AS conversation ON conversation.id = run.conversation
          JOIN name AS runtime ON runtime.id = run.runtime
          JOIN name AS machine ON machine.id = run.machine JOIN name AS agent ON agent.id = run.agent
          JOIN name AS project ON project.id = run.project
        WHERE chunk.id IN ({})"""
    hits_by_chunk = {}
    for chunk, *row in index.select_in(query, list(scores)):
        stated_ms, chunk_text, abandoned, is_summary, user, chunk_n = row[11:]
        flags = bool(abandoned), bool(is_summary)
        hits_by_chunk[chunk] = Hit(
            *row[:11], from_ms(stated_ms), chunk_text, scores[chunk], *flags, user=user, chunk=chunk_n
        )  # type: ignore[call-arg,misc]
    return [hits_by_chunk[chunk] for chunk, _ in chunk_scores]
