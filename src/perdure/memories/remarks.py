"""Tell in a few words why to read a memory or a note with care: what it names has changed, or others say otherwise.

`staleness` compares it with the files of its project, this module with the notes of the team there. Where both are
stated of one subject and differ, neither is decided for: each says that the other exists. Only `states_otherwise` asks
how a statement is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import product

from msgspec import Struct

from perdure.access.scan import Finding
from perdure.memories import subject
from perdure.memories.sentences import sentences
from perdure.memories.staleness import describe_changes
from perdure.memories.team_notes import TeamNote, read_notes
from perdure.text import index_terms, one_line, without_stopwords
from perdure.types import Memory

N_CACHED = 1024  # texts: each memory of a recall is compared with every note
_MAX_QUOTED_CHARS = 160
_MAX_CHARS = 1000  # of a text that is compared; a longer one is no single statement
TextScan = Callable[[str], Sequence[Finding]]  # the findings in a text that its owner has not allowed


def states_otherwise(new: str, old: str) -> bool:
    """Return True if two texts state the same subject, and not the same of it.

    >>> states_otherwise("The staging server listens on port 9443", "Our staging server listens on port 8443")
    True
    >>> states_otherwise("We use uv", "Our staging server listens on port 8443")
    False
    """
    pairs = product(_list_sentences(new), _list_sentences(old))
    return any(not subject.says_same(a, b) and (subject.replaces(a, b) or subject.replaces(b, a)) for a, b in pairs)


@lru_cache(maxsize=N_CACHED)
def _list_sentences(text: str) -> tuple[str, ...]:
    return tuple(text[start:end] for start, end in sentences(text))


class Remarks(Struct):
    """Remarks on the memories and notes of one project. Notes of its team are read once, when they are first needed.

    project: its folder on this disk. find_alike: returns own current memories that share words with a text.
    """

    project: str | None
    scan_text: TextScan
    find_alike: Callable[[str], Iterable[Memory]] = lambda _words: ()
    _notes: list[TeamNote] | None = None

    def describe(self, words: str, project: str | None, stated_at: datetime | None) -> str:
        """Return the remarks on a memory, or on a note of the team, in one line; "" if there is nothing to say."""
        remarks = (describe_changes(words, project, stated_at), self.describe_conflict(words, project))
        return "; ".join(filter(None, remarks))

    def describe_conflict(self, words: str, project: str | None) -> str:
        """Return who says otherwise, the team or the owner, and when; "" if nobody does.

        project: that of the words; None if they hold in all.
        """
        notes = self._read_notes() if project in (None, self.project) and len(words) <= _MAX_CHARS else []
        if not notes:
            return ""
        own_note = next((note for note in notes if note.text in words), None)
        if own_note is None:
            return self._describe_note(next((note for note in notes if _is_conflict(words, note.text)), None))
        memories = (memory for memory in self.find_alike(own_note.text) if memory.project in (None, self.project))
        return self._describe_memory(next((m for m in memories if _is_conflict(own_note.text, m.text)), None))

    def _read_notes(self) -> list[TeamNote]:
        if self._notes is None:
            self._notes = read_notes(self.project)
        return self._notes

    def _describe_note(self, note: TeamNote | None) -> str:
        if note is None:
            return ""
        date_text = f" of {note.dated}" if note.dated else ""
        return f"a note of the team{date_text} ({note.file}) says otherwise{self._quote(note.text)}"

    def _describe_memory(self, memory: Memory | None) -> str:
        if memory is None:
            return ""
        return f"your own memory of {memory.stated_at:%Y-%m-%d} says otherwise{self._quote(memory.text)}"

    def _quote(self, words: str) -> str:
        """Return words as a quotation; nothing if they read like an order to a model."""
        quoted_text = one_line(words, _MAX_QUOTED_CHARS)
        return "" if self.scan_text(quoted_text) else f": {quoted_text!r}"


def _is_conflict(a: str, b: str) -> bool:
    """Return True if two texts state one thing differently; texts without a common word are not compared."""
    return bool(list_words(a) & list_words(b)) and states_otherwise(a, b)


@lru_cache(maxsize=N_CACHED)
def list_words(words: str) -> frozenset[str]:
    """Return the words of a text that are no stop words, in lower case."""
    return frozenset(without_stopwords(index_terms(words).lower().split()))
