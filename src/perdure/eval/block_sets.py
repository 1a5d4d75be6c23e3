"""The questions about a block, what answers them, and the sets that hold them.

A set is a folder with `docs.jsonl` and `queries.jsonl`, as for recall, or a file of questions about real sessions
with the transcripts that answer them. A question is answered when the block holds one of its `accept` strings or
one of its gold turns; a question with neither deserves silence.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from perdure.errors import UsageError
from perdure.eval.bench import find_bench_time, open_group_memories
from perdure.eval.datasets import load_dataset, read_rows
from perdure.home import Home, open_home

RuleOrder: TypeAlias = Literal["new first", "new alone", "old first", "old alone", "neither"]
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
    wrong: tuple[str, ...] = ()  # none of them answers, though it looks so
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

    def tells_wrong(self) -> bool:
        """Return True if an item holds a string that only looks like the answer."""
        return any(words in item.text for item in self.items for words in self.question.wrong)

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
def open_set(sources: Sequence[Path], folder: Path, *, vectors: bool, stated: bool = False) -> Iterator[BlockSet]:
    """Yield a set with its homes open in a folder: one of dialogues, or questions about transcripts.

    stated: whether plain statements become memories, as they do in a home of a person.
    """
    if sources[0].is_dir():
        with _open_turns(sources[0], folder, vectors=vectors, stated=stated) as block_set:
            yield block_set
    elif len(sources) > 1:
        with _open_transcripts(sources[0], sources[1:], folder, vectors=vectors, stated=stated) as block_set:
            yield block_set
    else:
        raise UsageError(f"name the folder with the transcripts that {sources[0]} asks about, after it")


@contextmanager
def _open_turns(source: Path, folder: Path, *, vectors: bool, stated: bool) -> Iterator[BlockSet]:
    """Yield a set of dialogues: the gold turns answer; a row with `old` and `new` is answered by the words of `new`."""
    data = load_dataset(source)
    rows = {row["qid"]: row for row in read_rows(source / "queries.jsonl")}
    with open_group_memories(data, folder, vectors=vectors, stated=stated) as memories:
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
                    words=find_policy_words(question.answer) - find_policy_words(question.text),
                    rules=(Rule(words[0], sessions[0]), Rule(words[1], sessions[1]))
                    if all(words) or all(sessions)
                    else None,
                    wrong=tuple(row.get("wrong", ())),
                    kind=question.category,
                )
            )
        yield BlockSet(
            {group: memory.home for group, memory in memories.items()},
            {group: find_bench_time(memory.docs) for group, memory in memories.items()},
            questions,
        )


@contextmanager
def _open_transcripts(
    source: Path, transcripts: Sequence[Path], folder: Path, *, vectors: bool, stated: bool
) -> Iterator[BlockSet]:
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
    (folder / "home" / "config.toml").write_text(f"[memories]\nstated = {str(stated).lower()}\n")
    with open_home(folder / "home") as home:
        home.import_files(transcripts)
        home.upkeep.catch_up()
        if vectors:
            home.upkeep.embed()
        yield BlockSet({"": home}, {}, questions)


def find_policy_words(words: str) -> frozenset[str]:
    """Return the words of a decision that say something.

    >>> sorted(find_policy_words("the tie goes to p2, per day"))
    ['goes', 'p2']
    """
    return frozenset(
        word
        for word in _POLICY_WORD.findall(words.lower())
        if len(word) >= _MIN_WORD_CHARS or any(char.isdigit() for char in word)
    )


def list_scopes(questions: Sequence[BlockQuestion]) -> dict[str, bool]:
    """Return the scopes in which a set is asked; True for those that every project belongs to."""
    return {"in its project": False, "all projects": True} if questions[0].project else {"whole memory": True}
