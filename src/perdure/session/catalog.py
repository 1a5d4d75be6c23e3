"""The sessions of a home with what their entries add up to: titles, models, tokens, money, times, and the chains.

All of it is derived from the entries, each counted once: a compaction or a fork copies no message, so the totals are
the sum of the answers and of what summaries cost. What was derived of a session is cached until its log changes;
forgetting deletes the cache.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from perdure import disk, text
from perdure.access import block_cache
from perdure.access.redact import mask
from perdure.capture import session_file
from perdure.errors import NewerFormat, PerdureError, SessionMissing
from perdure.formats.perdure import Boundary, Branch, Label, Message, ModelChange, Start, Title
from perdure.identity import find_project
from perdure.session.log import list_session_ids, read_tree, resolve_entry
from perdure.session.spending import SessionTotals, add_totals, sum_by_job
from perdure.session.tree import SessionTree
from perdure.types import OWN_RUNTIME

if TYPE_CHECKING:
    from perdure.home import Home

LAST = "last"  # stands for the session of this project in which something was said last
_TITLE_CHARS = 80
_CACHE_FORMAT = 2


class SessionOverview(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the entries of one session add up to."""

    session: str
    title: str  # as somebody set it, or the first message on one line; masked
    agent: str
    created_at: datetime
    updated_at: datetime
    leaf: str  # the entry from which it goes on
    cwd: str = ""
    project: str | None = None
    parent_session: str = ""  # that it continues as a fork, or whose sub-agent it is
    parent: str = ""  # the entry there
    is_fork: bool = False
    is_subagent: bool = False
    provider: str = ""  # of the last answer, as the model
    model: str = ""
    n_messages: int = 0  # of the person, on all branches
    n_answers: int = 0
    n_calls: int = 0
    boundaries: tuple[str, ...] = ()  # ids of its compactions, on all branches
    n_branches: int = 0  # ways that were left
    n_forgotten: int = 0
    n_unreadable: int = 0
    totals_by_job: dict[str, SessionTotals] = {}

    @property
    def totals(self) -> SessionTotals:
        """The sum over all jobs."""
        return add_totals(self.totals_by_job.values())


@dataclass(frozen=True)
class ListedSession:
    """A session in the list of all."""

    number: int  # 1 is the oldest
    overview: SessionOverview
    root: str  # the session with which its chain of forks and sub-agents begins
    chain_totals: SessionTotals  # of all sessions of the chain


def summarise_session(session: str, tree: SessionTree) -> SessionOverview:
    """Return what the entries of a session add up to."""
    entries = list(tree)
    messages = [entry for entry in entries if isinstance(entry, Message)]
    answers = [message for message in messages if message.role == "assistant"]
    start = entries[0] if isinstance(entries[0], Start) else None
    titles = [entry.text for entry in entries if isinstance(entry, Title)]
    first_words = next((message.text for message in messages if message.role == "user" and message.text.strip()), "")
    models = [(a.provider, a.model) for a in answers if a.model]
    models += [change.model.partition(":")[::2] for change in entries[-1:] if isinstance(change, ModelChange)]
    provider, model = models[-1] if models else ("", "")
    return SessionOverview(
        session=session,
        title=text.one_line(mask(next(filter(None, reversed(titles)), first_words)), _TITLE_CHARS),
        agent=start.agent if start else "",
        created_at=entries[0].timestamp,
        updated_at=next((e for e in reversed(entries) if not isinstance(e, Label | Title)), entries[0]).timestamp,
        leaf=tree.leaf,
        cwd=start.cwd if start else "",
        project=find_project(start.cwd) if start and start.cwd else None,
        parent_session=(start.forked_from or start.spawned_by) if start else "",
        parent=start.parent if start else "",
        is_fork=bool(start and start.forked_from),
        is_subagent=bool(start and start.spawned_by),
        provider=provider,
        model=model,
        n_messages=sum(message.role == "user" for message in messages),
        n_answers=len(answers),
        n_calls=sum(len(answer.calls) for answer in answers),
        boundaries=tuple(entry.id for entry in entries if isinstance(entry, Boundary)),
        n_branches=sum(isinstance(entry, Branch) and bool(entry.left) for entry in entries),
        n_forgotten=tree.n_forgotten,
        n_unreadable=tree.n_unreadable,
        totals_by_job=sum_by_job(entries),
    )


def read_overview(home: Home, session: str) -> SessionOverview:
    """Return what the entries of one session add up to. Raises SessionMissing, NewerFormat."""
    return summarise_session(session, read_tree(home, session))


def list_sessions(home: Home) -> list[ListedSession]:
    """Return the sessions of the principal, the one in which something was said last first.

    A session of a newer format, or one of which everything was forgotten, is left out.
    """
    overviews = sorted(_read_overviews(home), key=lambda overview: (overview.created_at, overview.session))
    parents = {overview.session: overview.parent_session for overview in overviews}
    roots = {session: _find_root(session, parents) for session in parents}
    chain_totals = {root: SessionTotals() for root in roots.values()}
    for overview in overviews:
        root = roots[overview.session]
        chain_totals[root] = chain_totals[root].add(overview.totals)
    listed = [
        ListedSession(number, overview, roots[overview.session], chain_totals[roots[overview.session]])
        for number, overview in enumerate(overviews, start=1)
    ]
    return sorted(listed, key=lambda item: (item.overview.updated_at, item.number), reverse=True)


def _find_root(session: str, parents: Mapping[str, str]) -> str:
    seen = {session}
    while (parent := parents[session]) in parents and parent not in seen:
        seen.add(parent)
        session = parent
    return session


def find_last_session(home: Home, cwd: str | None) -> str:
    """Return the session of a project in which something was said last, no sub-agent's. Raises SessionMissing."""
    project = find_project(cwd)
    for item in list_sessions(home):
        if item.overview.project == project and not item.overview.is_subagent:
            return item.overview.session
    raise SessionMissing(f"no session in {project} yet" if project else "no session without a project yet")


# the cache ------------------------------------------------------------------------------------------------------


class _CachedOverview(msgspec.Struct, frozen=True, array_like=True):
    state: str  # of its log: see `_read_states`
    overview: SessionOverview


class _OverviewCache(msgspec.Struct, frozen=True):
    format: int
    user: str
    sessions: dict[str, _CachedOverview]


def _read_overviews(home: Home) -> list[SessionOverview]:
    """Return the overview of each session; only sessions whose logs changed are read."""
    states = _read_states(home)
    cached = _load_cache(home)
    fresh: dict[str, _CachedOverview] = {}
    for session, state in states.items():
        known = cached.get(session)
        if known is not None and known.state == state:
            fresh[session] = known
            continue
        with contextlib.suppress(SessionMissing, NewerFormat):
            fresh[session] = _CachedOverview(state, read_overview(home, session))
    if fresh != cached and home.writable:
        _store_cache(home, fresh)
        if _read_states(home) != states:  # something may have been forgotten meanwhile: keep no words of it
            block_cache.get_overviews_path(home.path, home.user).unlink(missing_ok=True)
    return [known.overview for known in fresh.values()]


def _read_states(home: Home) -> dict[str, str]:
    """Return session -> a text that changes with each change of its log."""
    changes = home.archive.ledger.list_session_changes(home.user, OWN_RUNTIME)
    states = {}
    for session in list_session_ids(home):
        n_open_bytes = 0
        with contextlib.suppress(FileNotFoundError):
            n_open_bytes = session_file.to_path(home.path, session).stat().st_size
        states[session] = f"{changes.get(session, '')} {n_open_bytes}"
    return states


def _load_cache(home: Home) -> dict[str, _CachedOverview]:
    try:
        data = block_cache.get_overviews_path(home.path, home.user).read_bytes()
        cache = msgspec.json.decode(data, type=_OverviewCache)
    except (OSError, msgspec.MsgspecError):
        return {}
    return cache.sessions if (cache.format, cache.user) == (_CACHE_FORMAT, home.user) else {}


def _store_cache(home: Home, overviews: dict[str, _CachedOverview]) -> None:
    path = block_cache.get_overviews_path(home.path, home.user)
    with contextlib.suppress(PerdureError, OSError):
        disk.make_folder(path.parent)
        disk.replace_file(path, msgspec.json.encode(_OverviewCache(_CACHE_FORMAT, home.user, overviews)))


# names ----------------------------------------------------------------------------------------------------------


def resolve_name(home: Home, name: str, *, cwd: str | None) -> tuple[str, str]:
    """Return (session, entry) for what a person says; the entry is "" for a session.

    name: the beginning of the id of a session, an entry or a turn; the number of a session in the list; or "last", the
    session of this project in which something was said last. Raises SessionMissing, UsageError if several begin so.
    """
    if name == LAST:
        return find_last_session(home, cwd), ""
    if name.isascii() and name.isdecimal():
        numbers = {item.number: item.overview.session for item in list_sessions(home)}
        if int(name) not in numbers:
            raise SessionMissing(name)
        return numbers[int(name)], ""
    return resolve_entry(home, name)
