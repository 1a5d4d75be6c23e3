"""The ways to fill a block from one home: what recall tells, and what it is compared with."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from itertools import islice

from perdure import text
from perdure.eval.block_sets import Block, BlockItem, BlockQuestion
from perdure.eval.plain_text import PlainTextSearch
from perdure.home import Home
from perdure.index import keyword
from perdure.recall.judge import extract_query_words, extract_stems
from perdure.recall.pack import cut_excerpt
from perdure.recall.tuning import DEFAULT
from perdure.types import Cue, Filters, Hit

EXCERPT_CHARS = 400  # of each turn in the blocks that recall is compared with
N_SEARCHED = 20  # turns that fill those blocks
N_RANDOM = 60
ALL_HITS = 1_000_000  # more than there are
_WORD = re.compile(r"\w+")


def list_pieces(home: Home) -> list[Hit]:
    """Return the pieces of all turns that recall may tell: words and calls, a long turn in several pieces."""
    hits = home.search("", limit=ALL_HITS).hits
    pieces = keyword.list_first_chunks(home.index(), home.principal, [hit.turn_id for hit in hits])
    told_pieces = [piece for hit in hits for piece in pieces.get(hit.turn_id, ()) if piece.kind in ("text", "call")]
    return list(keyword.describe_calls(home.index(), told_pieces))


class Ways:
    """The ways to fill a block from one home."""

    def __init__(self, home: Home, now: datetime | None) -> None:
        self._home = home
        self._now = now
        self._hits = [hit for hit in home.search("", limit=ALL_HITS).hits if hit.kind in ("text", "call")]
        self._words = [set(_WORD.findall(hit.text.lower())) for hit in self._hits]
        self._pieces = list_pieces(home)
        self.plain_search = PlainTextSearch([piece.text for piece in self._pieces])

    def recall(self, question: BlockQuestion, is_everywhere: bool) -> Block:
        """Tell what recall tells."""
        began_s = time.perf_counter()
        cwd = None if is_everywhere else question.project
        cues = self._home.recall(question.text, now=self._now, cwd=cwd, all_projects=is_everywhere).cues
        took_ms = (time.perf_counter() - began_s) * 1000
        return Block(question, tuple(map(self._to_item, cues)), took_ms)

    def _to_item(self, cue: Cue) -> BlockItem:
        """Return a cue as an item; one of a memory has the id of the turn that it comes from."""
        turn_id = cue.turn_id
        if cue.memory is not None:
            turn_id = next((turn for _, turn in self._home.memories.sources(turn_id) if turn), turn_id)
        return BlockItem(turn_id, f"{cue.before}\n{cue.text}\n{cue.note}", cue.n_tokens)

    def search_keywords(self, question: BlockQuestion, is_everywhere: bool) -> Block:
        """Tell the best turns of the keyword search."""
        began_s = time.perf_counter()
        filters = Filters() if is_everywhere or not question.project else Filters(projects=(question.project, ""))
        hits = self._home.search(question.text, filters=filters, limit=N_SEARCHED, mode="keyword").hits
        took_ms = (time.perf_counter() - began_s) * 1000
        return Block(question, excerpt_hits([hit for hit in hits if hit.score > 0], question), took_ms)

    def search_like_grep(self, question: BlockQuestion, is_everywhere: bool) -> Block:
        """Tell the turns with the most of the words as written, newest first."""
        began_s = time.perf_counter()
        words = {word for term in extract_query_words(question.text) for word in _WORD.findall(term)}
        counts = [
            (len(words & held_words), n)
            for n, held_words in enumerate(self._words)
            if is_in_scope(self._hits[n], question, is_everywhere)
        ]
        best = sorted((-count, n) for count, n in counts if count)[:N_SEARCHED]
        took_ms = (time.perf_counter() - began_s) * 1000
        return Block(question, excerpt_hits([self._hits[n] for _, n in best], question), took_ms)

    def search_plain_text(self, question: BlockQuestion, is_everywhere: bool) -> Block:
        """Tell the best pieces of SQLite's own full-text search."""
        began_s = time.perf_counter()
        pieces = (self._pieces[n] for n in self.plain_search.rank(question.text))
        best = list(islice((piece for piece in pieces if is_in_scope(piece, question, is_everywhere)), N_SEARCHED))
        took_ms = (time.perf_counter() - began_s) * 1000
        return Block(question, excerpt_hits(best, question), took_ms)

    def draw_turns(self, question: BlockQuestion, is_everywhere: bool) -> Block:
        """Tell turns by chance."""
        hits = [hit for hit in self._hits if is_in_scope(hit, question, is_everywhere)]
        draw = random.Random(question.text)
        return Block(question, excerpt_hits(draw.sample(hits, min(N_RANDOM, len(hits))), question, max_tokens=ALL_HITS))


WAYS: Mapping[str, Callable[[Ways, BlockQuestion, bool], Block]] = {
    "no memory": lambda _ways, question, _is_everywhere: Block(question, ()),
    "random turns": Ways.draw_turns,
    "grep": Ways.search_like_grep,
    "FTS5": Ways.search_plain_text,
    "keyword": Ways.search_keywords,
    "recall": Ways.recall,
}


def is_in_scope(hit: Hit, question: BlockQuestion, is_everywhere: bool) -> bool:
    """Return True if a question may be answered by this hit where it is asked."""
    return is_everywhere or hit.project in (question.project, None)


def excerpt_hits(
    hits: Iterable[Hit], question: BlockQuestion, *, max_tokens: int = DEFAULT.max_tokens
) -> tuple[BlockItem, ...]:
    """Return each turn once, as the part that holds most of the question's words, within the budget of recall."""
    stems = frozenset[str]().union(*map(extract_stems, extract_query_words(question.text)))
    hits_by_turn: dict[str, Hit] = {}
    for hit in hits:
        hits_by_turn.setdefault(hit.turn_id, hit)
    items: list[BlockItem] = []
    for turn_id, hit in hits_by_turn.items():
        excerpt = cut_excerpt(hit.text, stems, EXCERPT_CHARS)
        items.append(BlockItem(turn_id, excerpt, text.tokens(excerpt)))
        if sum(item.n_tokens for item in items) > max_tokens:
            return tuple(items[:-1])
    return tuple(items)
