"""The groups of a set as memories in a scratch home: what is measured is the product, not a likeness of it.

Each group is one owner's: BM25 counts its words alone, and a question finds nothing of another group. Turns are
captured, indexed and embedded as any transcript is; ids are translated back to those of the set.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from perdure.eval.datasets import Dataset, Doc
from perdure.home import Home, open_home
from perdure.identity import turn_id
from perdure.models.embedder import Embedder
from perdure.recall.indexed import Indexed
from perdure.recall.scope import SAID
from perdure.types import Role, Source
from perdure.vectors import Asked

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant"}


@dataclass
class Memory:
    """One group: its documents and the home that holds them."""

    home: Home
    docs: Sequence[Doc]
    ids: Mapping[str, str]  # turn id -> document id
    has_vectors: bool
    _of_memories: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _asked: dict[tuple[str, ...], Asked | None] = field(default_factory=dict)

    def asked(self, texts: Sequence[str]) -> Asked | None:
        """Texts as vectors, asked of the model once."""
        key = tuple(texts)
        if not self.has_vectors or not key:
            return None
        if key not in self._asked:
            self._asked[key] = self.home.vectors().ask(self.home.index(), self.home.user, texts)
        return self._asked[key]

    def candidates(self, asked: Asked | None) -> Indexed:
        """The product's own candidates, from every project."""
        return Indexed(self.home.index(), self.home.principal, SAID, asked.space if asked else None)

    def docs_of(self, names: Sequence[str], most: int | None = None) -> tuple[str, ...]:
        """The documents of these turns and of the turns behind these memories, each once, at most so many; a turn that
        is none keeps its own name.
        """
        found: dict[str, None] = {}
        for name in names:
            found.update(dict.fromkeys(self._docs(name)))
            if most is not None and len(found) >= most:
                break
        return tuple(found)[:most]

    def _docs(self, name: str) -> tuple[str, ...]:
        if not name.startswith("mem-"):
            return (self.ids.get(name, name),)
        if name not in self._of_memories:
            turns = [turn for _, turn in self.home.memories.sources(name) if turn]
            self._of_memories[name] = tuple(self.ids.get(turn, turn) for turn in turns)
        return self._of_memories[name]


@contextmanager
def memories(
    data: Dataset, place: Path, embedder: Embedder | None = None, *, vectors: bool = True, stated: bool = True
) -> Iterator[dict[str, Memory]]:
    """Group -> its memory, in a home under `place`: one that was left there before is used again.

    embedder: instead of the one that the settings name. vectors: whether there are any. stated: whether what people
    plainly state becomes memories.
    """
    (place / "home").mkdir(mode=0o700, parents=True, exist_ok=True)
    (place / "home" / "config.toml").write_text(f"[memories]\nstated = {str(stated).lower()}\n")
    with ExitStack() as stack:
        yield {
            group: stack.enter_context(_memory(place / "home", f"g{n}", docs, embedder, vectors))
            for n, (group, docs) in enumerate(data.groups().items())
        }


@contextmanager
def _memory(place: Path, user: str, docs: Sequence[Doc], embedder: Embedder | None, vectors: bool) -> Iterator[Memory]:
    with open_home(place, user=user, embedder=embedder) as home:
        ids: dict[str, str] = {}
        for session, said in _sessions(docs).items():
            body, offsets = _messages(said)
            source = Source(user, "messages", session)
            ids |= {turn_id(source, offset): doc_id for offset, doc_id in offsets.items()}
            home.capture(body, runtime="messages", session=session, conversation=user)
        home.catch_up()
        if vectors:
            home.embed()
        yield Memory(home, docs, ids, vectors)


def _sessions(docs: Sequence[Doc]) -> dict[str, list[Doc]]:
    found: dict[str, list[Doc]] = {}
    for doc in docs:
        found.setdefault(doc.session or doc.group, []).append(doc)
    return found


def _messages(docs: Sequence[Doc]) -> tuple[bytes, dict[int, str]]:
    """The documents of a session as a transcript of messages, and the offset of each."""
    body = bytearray()
    offsets: dict[int, str] = {}
    for doc in docs:
        offsets[len(body)] = doc.doc_id
        role = _ROLES.get(doc.speaker, "user")
        message = {"role": role, "content": doc.text.removeprefix(f"{role}: ")}
        if doc.stated_at:
            message["timestamp"] = doc.stated_at.isoformat()
        body += json.dumps(message, ensure_ascii=False).encode() + b"\n"
    return bytes(body), offsets
