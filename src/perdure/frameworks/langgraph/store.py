"""LangGraph's `BaseStore` over a home: values are read back as they were put, and search is that of memories.

A value lies in the state file of the user, exactly. What a person would read in it is a memory beside it, at the path
`store/<namespace>/<key>`, so that recall finds it in every client of the home. Deleting an item retires its memory;
only `perdure forget` deletes its words everywhere. Namespaces of two users never meet: each has a file of their own.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    get_text_at_path,
    validate_op_namespace,
)

from perdure.archive.memory_events import STORED
from perdure.errors import Busy, ModelFault, UsageError
from perdure.frameworks.home_calls import HomeCaller, HomeCalls
from perdure.frameworks.json_value import fits, list_texts, to_json
from perdure.home import Home
from perdure.memories.store import MAX_TEXT_BYTES, MemoryDraft
from perdure.state.store import ItemPut, StateFile, StoreItem

_ROOT = "store"  # the first part of the paths of its memories
_PLAIN_LABEL = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_MAX_PLAIN_CHARS = 160
_MAX_LABELS = 4  # of a path whose labels are not plain
_HASH_CHARS = 16
_S_PER_MIN = 60.0
_MAX_FIRST_VECTORS = 500  # some seconds


class PerdureStore(HomeCaller, BaseStore):
    """A store in a home. Any thread and event loop may use it, and several processes at once."""

    supports_ttl = True

    def __init__(self, home: Home, *, fields: Sequence[str] = (), ttl: TTLConfig | None = None) -> None:
        """fields: the fields of a value that search reads, in LangGraph's syntax; all of them unless named.

        ttl: LangGraph's settings for items that expire; expired ones are deleted at the next call.
        """
        self._fields = tuple(fields)
        self.ttl_config = ttl
        self._home = HomeCalls(home)
        self._is_checked = False  # for items whose memories a killed process did not make

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out operations: reads first, then all puts in one transaction, the last of each key."""
        listed = list(ops)
        puts = self._prepare_puts(listed)
        return self._home.run(lambda home, state: self._carry_out(home, state, listed, puts))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out operations as `batch` does."""
        listed = list(ops)
        puts = self._prepare_puts(listed)
        return await self._home.run_async(lambda home, state: self._carry_out(home, state, listed, puts))

    def _prepare_puts(self, ops: Iterable[Op]) -> dict[tuple[tuple[str, ...], str], tuple[ItemPut, str] | None]:
        """Return (namespace, key) -> (what to write, text of its memory); None: delete it. Raises before any write."""
        puts: dict[tuple[tuple[str, ...], str], tuple[ItemPut, str] | None] = {}
        for op in ops:
            validate_op_namespace(op)
            if isinstance(op, PutOp):
                _check_text(op.namespace, op.key)
                puts[op.namespace, op.key] = None if op.value is None else self._prepare_put(op, op.value)
        return puts

    def _prepare_put(self, op: PutOp, value: Mapping[str, Any]) -> tuple[ItemPut, str]:
        if not isinstance(value, Mapping):
            raise UsageError(f"a value is a mapping, not of the type {type(value).__name__}")
        raw = to_json(value, "the value")
        text = "" if op.index is False else _make_text(json.loads(raw), op.index or self._fields)
        path = make_path(op.namespace, op.key) if text else ""
        ttl_s = None if op.ttl is None else op.ttl * _S_PER_MIN
        return ItemPut(op.namespace, op.key, raw, path, ttl_s), text

    def _carry_out(
        self,
        home: Home,
        state: StateFile,
        ops: Sequence[Op],
        puts: Mapping[tuple[tuple[str, ...], str], tuple[ItemPut, str] | None],
    ) -> list[Result]:
        now_s = time.time()
        if not self._is_checked:
            unkept = [(item.path, _make_text(json.loads(item.value), self._fields)) for item in state.list_unkept()]
            _keep_memories(home, state, unkept)
            self._is_checked = True
        _retire(home, state.delete_expired(now_s=now_s))
        results = [self._read(home, state, op, now_s) for op in ops]
        if puts:
            written = [put for put in puts.values() if put]
            deleted = [place for place, put in puts.items() if not put]
            state.write_items([put for put, _ in written], deleted, now_s=now_s)
            silent = [(put.namespace, put.key) for put, text in written if not text]
            _retire(home, [make_path(*place) for place in (*deleted, *silent)])
            _keep_memories(home, state, [(put.path, text) for put, text in written if text])
        return results

    def _read(self, home: Home, state: StateFile, op: Op, now_s: float) -> Result:
        """Return what one operation reads; None for a put."""
        if isinstance(op, GetOp):
            item = state.get_item(op.namespace, op.key, now_s=now_s)
            if item and op.refresh_ttl:
                state.renew([item], now_s=now_s)
            return _to_item(item) if item else None
        if isinstance(op, SearchOp):
            return self._search(home, state, op, now_s)
        if isinstance(op, ListNamespacesOp):
            return _list_namespaces(state.list_namespaces(now_s=now_s), op)
        return None

    def _search(self, home: Home, state: StateFile, op: SearchOp, now_s: float) -> list[SearchItem]:
        items = [
            (item, value)
            for item in state.list_items(op.namespace_prefix, now_s=now_s)
            if fits(value := json.loads(item.value), op.filter or {})
        ]
        scores: Mapping[str, float | None] = {item.path: None for item, _ in items}
        end = op.offset + op.limit
        if op.query and end > 0:
            scores = {
                hit.memory.path: hit.score
                for hit in home.memories.search(op.query, limit=end, paths={path for path in scores if path})
            }
            by_path = {item.path: (item, value) for item, value in items}
            items = [by_path[path] for path in scores]
        page = items[op.offset : end]
        if op.refresh_ttl:
            state.renew([item for item, _ in page], now_s=now_s)
        return [
            SearchItem(
                item.namespace, item.key, value, _to_time(item.created_s), _to_time(item.updated_s), scores[item.path]
            )
            for item, value in page
        ]


def make_path(namespace: Sequence[str], key: str) -> str:
    """Return the path of an item's memory: its labels as they are, or words of them and a hash.

    >>> make_path(("users", "ann"), "tea"), make_path(("users", "Ann/../x"), "a b")
    ('store/users/ann/tea', 'store/users/ann-x/a-b~3ab15ab625c5f6a7')
    """
    labels = [*namespace, key]
    plain = "/".join((_ROOT, *labels))
    if all(map(_PLAIN_LABEL.fullmatch, labels)) and len(plain) <= _MAX_PLAIN_CHARS:
        return plain
    words = [re.sub(r"[^a-z0-9_]+", "-", label.lower()).strip("-")[:30] for label in labels]
    shown = [word for word in (*words[: _MAX_LABELS - 1], words[-1])[: len(words)] if word]
    digest = hashlib.sha256(json.dumps(labels).encode()).hexdigest()[:_HASH_CHARS]
    return "/".join((_ROOT, *shown)) + f"~{digest}"


def _check_text(namespace: Iterable[str], key: str) -> None:
    try:
        "".join((*namespace, key)).encode()
    except UnicodeEncodeError as error:
        raise UsageError("a namespace or key has text that is not UTF-8") from error


def _make_text(value: Mapping[str, Any], fields: Sequence[str]) -> str:
    """Return the text of an item's memory; "" if there is nothing to read. A long one is cut."""
    if fields:
        lines = [line for field in fields for line in get_text_at_path(value, field)]
    else:
        texts = list_texts(value)
        only_field = next(iter(value.values()), None) if len(value) == 1 else None
        lines = [only_field] if isinstance(only_field, str) else texts
    text = "\n".join(lines).strip()
    return text.encode()[:MAX_TEXT_BYTES].decode(errors="ignore").strip()


def _keep_memories(home: Home, state: StateFile, texts: Sequence[tuple[str, str]]) -> None:
    """Keep the memories of items. texts: path and text of each. One that the write gate refuses is not searched."""
    if texts:
        drafts = [MemoryDraft(text, path=path, trust="agent", how=STORED) for path, text in texts if text]
        home.memories.keep_all(drafts, by="agent")
        state.set_kept(path for path, _ in texts)
        _embed(home)


def _embed(home: Home) -> None:
    """Embed new memories. A home without vectors gets its first ones here, unless that would take minutes."""
    if home.connections.may_have_vectors() or home.upkeep.count_unembedded() > _MAX_FIRST_VECTORS:
        home.memories.embed_new()
        return
    with contextlib.suppress(ModelFault, Busy):  # search goes on by words
        home.upkeep.embed()


def _retire(home: Home, paths: Iterable[str]) -> None:
    """Retire the memories of items that are gone."""
    ids = [
        memory.memory_id
        for path in dict.fromkeys(paths)
        for memory in home.memories.list_memories(prefix=path)
        if memory.path == path and memory.how == STORED
    ]
    if ids:
        home.memories.change(ids, by="agent", retired=True)


def _to_item(item: StoreItem) -> Item:
    return Item(
        value=json.loads(item.value),
        key=item.key,
        namespace=item.namespace,
        created_at=_to_time(item.created_s),
        updated_at=_to_time(item.updated_s),
    )


def _to_time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _list_namespaces(namespaces: Iterable[tuple[str, ...]], op: ListNamespacesOp) -> list[tuple[str, ...]]:
    matching = [name for name in namespaces if all(_matches(name, term) for term in op.match_conditions or ())]
    cut = sorted({name[: op.max_depth] for name in matching}) if op.max_depth is not None else matching
    return cut[op.offset : op.offset + op.limit]


def _matches(namespace: tuple[str, ...], condition: MatchCondition) -> bool:
    """Return True if a namespace begins, or ends, with the labels of a condition; `*` is any label."""
    path = condition.path
    if len(namespace) < len(path):
        return False
    labels = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", label) for label, wanted in zip(labels, path, strict=True))
