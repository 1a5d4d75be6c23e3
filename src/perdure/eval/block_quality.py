"""The evaluation of the block: what stands in the text that a model reads, beside other ways to fill it.

A set is a folder with `docs.jsonl` and `queries.jsonl`, as for recall, or a file of questions about real sessions
with the transcripts that answer them. A question is answered when the block holds one of its `accept` strings or
one of its gold turns; a question with neither deserves silence. Every way fills its block from the same home;
its answer is also looked for in the first 400 and 800 tokens, so that ways are compared at equal length, and with
what as many tokens of random turns hold by chance.
"""

from __future__ import annotations

import hashlib
import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from perdure import text
from perdure.errors import UsageError
from perdure.eval import measures
from perdure.eval.bench import find_bench_time, open_group_memories
from perdure.eval.datasets import load_dataset, read_rows
from perdure.eval.plain_text import PlainTextSearch
from perdure.home import Home, open_home
from perdure.index import keyword
from perdure.recall.judge import extract_query_words, extract_stems
from perdure.recall.pack import cut_excerpt
from perdure.recall.tuning import DEFAULT
from perdure.types import Filters, Hit

CUTS = (400, 800)  # tokens of the block in which the answer is looked for
EXCERPT_CHARS = 400  # of each turn in the blocks that recall is compared with
N_SEARCHED = 20  # turns that fill those blocks
N_RANDOM = 60
ALL_HITS = 1_000_000  # more than there are
RuleOrder: TypeAlias = Literal["new first", "new alone", "old first", "old alone", "neither"]
Progress: TypeAlias = "Callable[[int, int], None]"
_Blocks: TypeAlias = "dict[str, dict[str, list[Block]]]"  # scope -> way -> the block for each question
_WORD = re.compile(r"\w+")
_POLICY_WORD = re.compile(r"[a-z0-9_.]+")
_MIN_WORD_CHARS = 4  # of a word of a decision; shorter ones count if they hold a digit


class BlockItem(NamedTuple):
    """One turn as it stands in a block."""

    turn_id: str
    text: str
    n_tokens: int


class Rule(NamedTuple):
    """How a rule is recognised: by words that only it holds, otherwise by the turns of its session."""

    words: str
    turn_ids: frozenset[str]

    def is_in(self, item: BlockItem) -> bool:
        """Return True if an item states the rule."""
        return self.words in item.text if self.words else item.turn_id in self.turn_ids


@dataclass(frozen=True, slots=True)
class BlockQuestion:
    """One question and what answers it. Without accepted strings and gold turns it deserves silence."""

    text: str
    user: str  # whose memory is asked
    project: str | None = None  # asked from there; None: from every project
    accepted: tuple[str, ...] = ()  # one of them answers
    gold: frozenset[str] = frozenset()  # ids of turns, each of which answers
    words: frozenset[str] = frozenset()  # of the decision that is asked for
    rules: tuple[Rule, Rule] | None = None  # what was taken back, and what is in force
    kind: str = ""

    @property
    def deserves_silence(self) -> bool:
        """True if nothing in the memory answers."""
        return not self.accepted and not self.gold


@dataclass(frozen=True, slots=True)
class Block:
    """What one way tells for a question."""

    question: BlockQuestion
    items: tuple[BlockItem, ...]
    took_ms: float = 0.0

    @property
    def n_tokens(self) -> int:
        """Tokens of all items."""
        return sum(item.n_tokens for item in self.items)

    def find_answer(self, max_tokens: int | None = None) -> int | None:
        """Return the position, from 1, of the first item that answers, within so many tokens; None without one."""
        n_tokens = 0
        for position, item in enumerate(self.items, start=1):
            n_tokens += item.n_tokens
            if max_tokens is not None and n_tokens > max_tokens:
                return None
            if answers(self.question, item):
                return position
        return None

    def order_rules(self) -> RuleOrder | None:
        """Return which of the two rules stands first, and whether the other one is missing; None without rules."""
        if self.question.rules is None:
            return None
        old, new = (
            next((n for n, item in enumerate(self.items) if rule.is_in(item)), None) for rule in self.question.rules
        )
        if old is None:
            return "neither" if new is None else "new alone"
        if new is None:
            return "old alone"
        return "new first" if new <= old else "old first"


def answers(question: BlockQuestion, item: BlockItem) -> bool:
    """Return True if an item holds an accepted string or is a gold turn."""
    return item.turn_id in question.gold or any(words in item.text for words in question.accepted)


@dataclass(frozen=True, slots=True)
class BlockReport:
    """The results on one set."""

    name: str
    figures: Mapping[str, Any]  # plain values, for JSON
    blocks: Mapping[str, Sequence[Block]] = field(default_factory=dict)  # way -> its blocks

    def text(self) -> str:
        """Format the results as tables for people."""
        parts = [
            f"{self.name}: {self.figures['n_answerable']} questions, {self.figures['n_silence']} without an answer"
        ]
        for scope, rows in self.figures["scopes"].items():
            parts.append(_format_rows(scope, rows))
        return "\n\n".join(parts)

    def errors(self) -> str:
        """List the questions whose answer recall did not tell, and those that deserved silence and got a block."""
        lines = []
        for scope, blocks in self.blocks.items():
            for block in blocks:
                if block.question.deserves_silence and block.items:
                    lines.append(f"{scope}: not silent: {block.question.text}")
                elif not block.question.deserves_silence and block.find_answer() != 1:
                    position = block.find_answer()
                    lines.append(f"{scope}: {f'answer at {position}' if position else 'missed'}: {block.question.text}")
                else:
                    continue
                lines += [f"    {text.one_line(item.text, 120)}" for item in block.items]
        return "\n".join(lines) or "none"


def run(
    sources: Sequence[Path],
    *,
    half: str | None = None,
    vectors: bool = True,
    home: Path | None = None,
    progress: Progress | None = None,
) -> BlockReport:
    """Measure one set: a folder with docs.jsonl and queries.jsonl, or a file of questions and the transcripts.

    half: only the questions of this half, "dev" or "held_out", which their words decide. home: a scratch home to
    keep and use again. progress gets (questions asked, all questions). Raises UsageError if a file of questions has
    no transcripts.
    """
    with tempfile.TemporaryDirectory(prefix="perdure-eval-") as scratch:
        folder = home or Path(scratch)
        with open_set(sources, folder, vectors=vectors) as block_set:
            chosen = [question for question in block_set.questions if half in (None, find_half(question.text))]
            if not chosen:
                raise UsageError(f"{sources[0]} has no question of this half")
            blocks = _ask_all(block_set, chosen, progress)
    figures = {
        "n_answerable": sum(not question.deserves_silence for question in chosen),
        "n_silence": sum(question.deserves_silence for question in chosen),
        "scopes": {
            scope: {way: measure_blocks(way_blocks) for way, way_blocks in blocks_by_way.items()}
            for scope, blocks_by_way in blocks.items()
        },
    }
    return BlockReport(
        sources[0].stem, figures, {scope: blocks_by_way["recall"] for scope, blocks_by_way in blocks.items()}
    )


def find_half(question: str) -> str:
    """Return the half that a question belongs to: by its words, so that it never changes.

    >>> find_half("which port?"), find_half("which port does staging use")
    ('dev', 'held_out')
    """
    return "dev" if hashlib.sha256(question.encode()).digest()[0] % 2 else "held_out"


class BlockSet(NamedTuple):
    """An open set: its homes and its questions."""

    homes: Mapping[str, Home]  # user -> home
    asked_at: Mapping[str, datetime]  # user -> the time of asking; now for a user who is not in it
    questions: Sequence[BlockQuestion]


@contextmanager
def open_set(sources: Sequence[Path], folder: Path, *, vectors: bool) -> Iterator[BlockSet]:
    """Yield a set with its homes open in a folder: one of dialogues, or questions about transcripts."""
    if sources[0].is_dir():
        with _open_turns(sources[0], folder, vectors=vectors) as block_set:
            yield block_set
    elif len(sources) > 1:
        with _open_transcripts(sources[0], sources[1:], folder, vectors=vectors) as block_set:
            yield block_set
    else:
        raise UsageError(f"name the folder with the transcripts that {sources[0]} asks about, after it")


@contextmanager
def _open_turns(source: Path, folder: Path, *, vectors: bool) -> Iterator[BlockSet]:
    """Yield a set of dialogues: the gold turns answer; a row with `old` and `new` is answered by the words of `new`."""
    data = load_dataset(source)
    rows = {row["qid"]: row for row in read_rows(source / "queries.jsonl")}
    with open_group_memories(data, folder, vectors=vectors, stated=False) as memories:
        turn_ids = {
            doc_id: turn_id for memory in memories.values() for turn_id, doc_id in memory.doc_ids_by_turn.items()
        }
        turns_by_session: dict[str, set[str]] = {}
        for doc in data.docs:
            turns_by_session.setdefault(doc.session, set()).add(turn_ids[doc.doc_id])
        questions = []
        for question in data.questions:
            row = rows[question.qid]
            sessions = [frozenset(turns_by_session.get(f"{question.qid}/{n}", ())) for n in (0, 1)]
            words = [str(row.get(name, "")) for name in ("old", "new")]
            questions.append(
                BlockQuestion(
                    question.text,
                    question.group,
                    accepted=(words[1],) if words[1] else (),
                    gold=frozenset() if words[1] else frozenset(turn_ids[doc_id] for doc_id in question.gold),
                    words=_find_policy_words(question.answer) - _find_policy_words(question.text),
                    rules=(Rule(words[0], sessions[0]), Rule(words[1], sessions[1])) if all(sessions) else None,
                    kind=question.category,
                )
            )
        yield BlockSet(
            {group: memory.home for group, memory in memories.items()},
            {group: find_bench_time(memory.docs) for group, memory in memories.items()},
            questions,
        )


@contextmanager
def _open_transcripts(source: Path, transcripts: Sequence[Path], folder: Path, *, vectors: bool) -> Iterator[BlockSet]:
    """Yield a file of questions and the home that holds the transcripts. A question without a project is asked from
    that of the first question that has one.
    """
    rows = list(read_rows(source))
    somewhere = next((row["project"] for row in rows if row["project"]), None)
    questions = [
        BlockQuestion(row["question"], "", row["project"] or somewhere, tuple(row["accept"]), kind=row.get("kind", ""))
        for row in rows
    ]
    (folder / "home").mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / "home" / "config.toml").write_text("[memories]\nstated = false\n")
    with open_home(folder / "home") as home:
        home.import_files(transcripts)
        home.upkeep.catch_up()
        if vectors:
            home.upkeep.embed()
        yield BlockSet({"": home}, {}, questions)


def _find_policy_words(words: str) -> frozenset[str]:
    """Return the words of a decision that say something.

    >>> sorted(_find_policy_words("the tie goes to p2, per day"))
    ['goes', 'p2']
    """
    return frozenset(
        word
        for word in _POLICY_WORD.findall(words.lower())
        if len(word) >= _MIN_WORD_CHARS or any(char.isdigit() for char in word)
    )


def _ask_all(block_set: BlockSet, questions: Sequence[BlockQuestion], progress: Progress | None) -> _Blocks:
    """Return scope -> way -> the block for each question, in their order."""
    ways = {user: Ways(home, block_set.asked_at.get(user)) for user, home in block_set.homes.items()}
    scopes = list_scopes(questions)
    blocks: _Blocks = {scope: {way: [] for way in WAYS} for scope in scopes}
    for n_asked, question in enumerate(questions):
        if progress:
            progress(n_asked, len(questions))
        for scope, is_everywhere in scopes.items():
            for way, ask in WAYS.items():
                blocks[scope][way].append(ask(ways[question.user], question, is_everywhere))
    return blocks


def list_scopes(questions: Sequence[BlockQuestion]) -> dict[str, bool]:
    """Return the scopes in which a set is asked; True for those that every project belongs to."""
    return {"in its project": False, "all projects": True} if questions[0].project else {"whole memory": True}


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
        self._plain_search = PlainTextSearch([piece.text for piece in self._pieces])

    def recall(self, question: BlockQuestion, is_everywhere: bool) -> Block:
        """Tell what recall tells."""
        began_s = time.perf_counter()
        cwd = None if is_everywhere else question.project
        cues = self._home.recall(question.text, now=self._now, cwd=cwd, all_projects=is_everywhere).cues
        took_ms = (time.perf_counter() - began_s) * 1000
        items = tuple(BlockItem(cue.turn_id, f"{cue.before}\n{cue.text}\n{cue.note}", cue.n_tokens) for cue in cues)
        return Block(question, items, took_ms)

    def search_keywords(self, question: BlockQuestion, is_everywhere: bool) -> Block:
        """Tell the best turns of the keyword search."""
        began_s = time.perf_counter()
        filters = Filters() if is_everywhere or not question.project else Filters(projects=(question.project, ""))
        hits = self._home.search(question.text, filters=filters, limit=N_SEARCHED, mode="keyword").hits
        took_ms = (time.perf_counter() - began_s) * 1000
        return Block(question, excerpt_hits([hit for hit in hits if hit.score > 0], question), took_ms)

    def search_like_grep(self, question: BlockQuestion, is_everywhere: bool) -> Block:
        """Tell the turns with the most of the words as written, newest first."""
        words = {word for term in extract_query_words(question.text) for word in _WORD.findall(term)}
        counts = [
            (len(words & held_words), n)
            for n, held_words in enumerate(self._words)
            if is_in_scope(self._hits[n], question, is_everywhere)
        ]
        best = sorted((-count, n) for count, n in counts if count)[:N_SEARCHED]
        return Block(question, excerpt_hits([self._hits[n] for _, n in best], question))

    def search_plain_text(self, question: BlockQuestion, is_everywhere: bool) -> Block:
        """Tell the best pieces of SQLite's own full-text search."""
        began_s = time.perf_counter()
        pieces = (self._pieces[n] for n in self._plain_search.rank(question.text))
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


def measure_blocks(blocks: Sequence[Block]) -> dict[str, Any]:
    """Return the figures of one way: shares of questions, and means over blocks."""
    answerable = [block for block in blocks if not block.question.deserves_silence]
    silence = [block for block in blocks if block.question.deserves_silence]
    positions = [block.find_answer() for block in answerable]
    figures: dict[str, Any] = {
        "told": _estimate([position is not None for position in positions]),
        "first": _estimate([position == 1 for position in positions]),
        "among three": _estimate([position is not None and position <= 3 for position in positions]),
        **{f"told in {cut}": _estimate([block.find_answer(cut) is not None for block in answerable]) for cut in CUTS},
        "false silence": _mean([not block.items for block in answerable]),
        "silent": _estimate([not block.items for block in silence]),
        "cues": _mean([len(block.items) for block in answerable]),
        "unhelpful": _mean([sum(not answers(block.question, item) for item in block.items) for block in answerable]),
        "tokens": _mean([block.n_tokens for block in answerable]),
        "p50 ms": sorted(block.took_ms for block in blocks)[len(blocks) // 2],
    }
    if any(block.question.words for block in answerable):
        figures["words told"] = _estimate([_share_words(block) for block in answerable if block.question.words])
    if orders := [order for block in blocks if (order := block.order_rules())]:
        figures["rules"] = dict(sorted(Counter(orders).items()))
    return figures


def _share_words(block: Block) -> float:
    told = _find_policy_words(" ".join(item.text for item in block.items))
    return len(block.question.words & told) / len(block.question.words)


def _estimate(values: Sequence[float]) -> dict[str, float] | None:
    return asdict(measures.bootstrap([float(value) for value in values])) if values else None


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


_SHARES = ("told", "first", "among three", *(f"told in {cut}" for cut in CUTS), "silent", "words told")
_MEANS = ("cues", "unhelpful", "tokens", "p50 ms")


def _format_rows(scope: str, rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Format the ways as rows: shares in per cent, for recall with their interval of 95 %."""
    shares = [name for name in _SHARES if any(row.get(name) for row in rows.values())]
    width = max(map(len, (scope, *rows))) + 2
    lines = [scope.ljust(width) + "".join(name.rjust(max(9, len(name) + 2)) for name in (*shares, *_MEANS))]
    for way, row in rows.items():
        cells = [
            (f"{100 * row[name]['at']:.1f}" if row.get(name) else "–").rjust(max(9, len(name) + 2)) for name in shares
        ]
        cells += [f"{row[name]:.1f}".rjust(max(9, len(name) + 2)) for name in _MEANS]
        lines.append(way.ljust(width) + "".join(cells))
    told = rows["recall"]
    intervals = [
        f"{name} [{100 * told[name]['low']:.1f}, {100 * told[name]['high']:.1f}]" for name in shares if told.get(name)
    ]
    lines.append(
        f"recall, 95 % of resamples: {', '.join(intervals)}; falsely silent {100 * told['false silence']:.1f} %"
    )
    for way, row in rows.items():
        if "rules" in row:
            lines.append(f"{way}, rule that changed: {', '.join(f'{order} {n}' for order, n in row['rules'].items())}")
    return "\n".join(lines)
