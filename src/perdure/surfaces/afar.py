"""The remote home, as the commands that read ask it: its answers as the nouns that a home here would give.

It is asked with this machine's credential, and shows what that may see. What its API cannot be asked is refused in
words, never answered as if it had been.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from perdure import formats
from perdure.capture import credential, lines, remote
from perdure.capture.remote import Answer, Line, Query
from perdure.capture.rules import Rules
from perdure.errors import NotFound, RemoteAway, RemoteNonsense, UsageError
from perdure.identity import is_run_id, project_of
from perdure.surfaces.reading import Placed
from perdure.types import RUNTIMES, Cue, Filters, Found, Hit, Node, Plan, Recalled, RunView

_PAGE = 100  # hits in one answer
_MOST_TREES = 500  # runs in one answer
_ASKED = {  # field of Filters -> what the API calls it
    "agents": "agent", "projects": "project", "runtimes": "agent_runtime", "machines": "machine_id", "roles": "role",
    "kinds": "kind", "tags": "tags",
}  # fmt: skip

Noun = TypeVar("Noun")


@contextlib.contextmanager
def opened(rules: Rules) -> Iterator[Afar]:
    """The remote home of this machine, for the block. Raises RemoteRefused without a credential, CredentialFault."""
    line, known = remote.line_of(rules.home, rules.remote), credential.read(rules.home)
    try:
        yield Afar(line, known.user_id if known else "")
    finally:
        line.close()


class Afar:
    """A home that is asked over the line."""

    def __init__(self, line: Line, user: str) -> None:
        """line: closed by who opened it. user: whose machine this is."""
        self.user = user
        self._line = line

    def me(self) -> dict[str, Any]:
        """Whose machine this is, by the home's own word."""
        return self._ask("GET", "me")

    def search(self, query: str, filters: Filters, *, limit: int, mode: str | None) -> Found:
        """The turns that match, best first."""
        if not query.strip():
            raise UsageError("the remote home searches for words: say some beside the filters")
        asked: dict[str, Any] = {"query": query, "filters": _narrowed(filters), "limit": min(limit, _PAGE)}
        asked |= {"mode": mode} if mode else {}
        hits: list[Hit] = []
        took_ms = 0.0
        while True:
            said = self._ask("POST", "runs/search", body=asked)
            hits += [_hit(item) for item in _list(said, "hits")]
            took_ms += float(said.get("timing", {}).get("total_ms", 0))
            if not said.get("next_cursor") or len(hits) >= limit:
                break
            asked["cursor"] = said["next_cursor"]
        return Found(
            hits=tuple(hits[:limit]), terms=tuple(query.split()), degraded=tuple(said.get("degraded", ())),
            n_behind=int(said.get("behind") or 0), took_ms=took_ms, mode=str(said.get("mode") or mode or "hybrid"),
        )  # fmt: skip

    def recall(self, message: str, *, cwd: str | None, all_projects: bool, mode: str | None, as_of: datetime | None
               ) -> Recalled:  # fmt: skip
        """What a model would be told for a message."""
        asked = {
            "message": message, "cwd": cwd, "project": project_of(cwd), "all_projects": all_projects, "mode": mode,
            "as_of": as_of.isoformat() if as_of else None,
        }  # fmt: skip
        said = self._ask("POST", "recall", body={name: value for name, value in asked.items() if value is not None})
        plan = Plan(message, datetime.now(UTC), tuple(message.split()[:1]))
        return Recalled(
            cues=tuple(_cue(item) for item in _list(said, "cues")), plan=plan, silent=str(said.get("silent") or ""),
            degraded=tuple(said.get("degraded", ())), timings_ms=said.get("timings_ms") or {},
            n_tokens=int(said.get("n_tokens") or 0),
        )  # fmt: skip

    def forest(self, *, since: str | None, runtime: str | None, root: str | None, limit: int) -> list[Node]:
        """The newest runs as trees."""
        asked = {"since": since, "runtime": runtime, "root_run_id": root}
        query = [(name, value) for name, value in asked.items() if value]
        query += [("limit", str(min(limit, _MOST_TREES))), ("flat", "true")]
        said = self._ask("GET", "runs/forest", query=query)
        return _trees([(int(item["depth"]), _view(item["run"])) for item in _list(said, "items")])

    def resolve(self, prefix: str) -> str:
        """The id of the run that begins so, among the newest. Raises NotFound."""
        if is_run_id(prefix):
            return prefix
        said = self._ask("GET", "runs/forest", query=[("limit", str(_MOST_TREES)), ("flat", "true")])
        found = [str(item["run"]["run_id"]) for item in _list(said, "items")]
        fitting = [run_id for run_id in found if run_id.startswith(prefix)]
        if len(fitting) > 1:
            raise UsageError(f"{prefix!r} begins {len(fitting)} ids: write more of it")
        if not fitting:
            raise NotFound(f"{prefix} (a remote home is asked for runs, by their id)")
        return fitting[0]

    def run(self, run_id: str) -> RunView:
        """A run with everything that is derived about it. Raises NotFound."""
        return _view(self._ask("GET", f"runs/{quote(run_id, safe='')}"))

    def jsonl(self, run_id: str) -> bytes:
        """The bytes of a run, as this user may read them. Raises NotFound."""
        return _answered(self._line.ask("GET", f"runs/{quote(run_id, safe='')}/jsonl")).raw

    def turns(self, view: RunView) -> list[Placed]:
        """The turns of a run in order."""
        runtime = view.runtime if view.runtime in RUNTIMES else "messages"
        spawned = view.session != view.conversation and not view.fork
        raw = lines.split(self.jsonl(view.run_id), from_offset=view.from_offset)
        return [(view, turn, False) for turn in formats.parse(runtime, raw, spawned=spawned).turns]

    def _ask(self, method: str, path: str, *, query: Query = (), body: object = None) -> dict[str, Any]:
        return _answered(self._line.ask(method, path, query=query, body=body)).body


def _answered(answer: Answer) -> Answer:
    """The answer, if it is one to a question that was in order. Raises NotFound, UsageError, RemoteNonsense."""
    if answer.status == 200:
        return answer
    if not answer.code:
        raise RemoteNonsense(f"status {answer.status}")
    message = str(answer.body["error"].get("message") or answer.code)
    if answer.status == 404:
        raise NotFound(message)
    if answer.status == 409:
        raise RemoteAway(message)
    raise UsageError(message)


def _list(said: dict[str, Any], name: str) -> Sequence[dict[str, Any]]:
    found = said.get(name)
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise RemoteNonsense(f"no {name}")
    return found


def _narrowed(filters: Filters) -> dict[str, Any]:
    """The filters in the API's words. Raises UsageError for those that it has no words for."""
    for name in ("files", "tools", "skills", "entities"):
        if getattr(filters, name):
            raise UsageError(f"a remote home cannot be asked for {name}; run it at the home")
    if len(filters.conversations) > 1:
        raise UsageError("a remote home can be asked for one conversation at a time")
    asked: dict[str, Any] = {
        named: list(getattr(filters, name)) for name, named in _ASKED.items() if getattr(filters, name)
    }
    if filters.conversations:
        asked["conversation_id"] = filters.conversations[0]
    times = {"gte": filters.since_at, "lte": filters.until_at}
    between = {name: at.isoformat() for name, at in times.items() if at is not None}
    return {**asked, "stated_at": between} if between else asked


def _hit(item: dict[str, Any]) -> Hit:
    score = item.get("score") or {}
    distance = score.get("vector_distance")
    known = {
        **item, "user": item.get("user") or "", "score": float(score.get("fused") or 0.0),
        "keyword_score": score.get("text_match"), "vector_score": None if distance is None else 1 - distance,
    }  # fmt: skip
    return _noun(known, Hit)


def _cue(item: dict[str, Any]) -> Cue:
    known = {"conversation": "", "legs": {}, **item}
    return _noun({name: value for name, value in known.items() if name != "memory"}, Cue)


def _view(item: Any) -> RunView:
    return _noun(item, RunView)


def _noun(item: Any, shape: type[Noun]) -> Noun:
    try:
        return msgspec.convert(item, shape)
    except msgspec.ValidationError as error:
        raise RemoteNonsense(f"a {shape.__name__} that is none: {error}") from error


def _trees(rows: Sequence[tuple[int, RunView]]) -> list[Node]:
    """Trees of a list in which parents stand before their children, each with its depth.

    Built from the end, so that a chain of thousands needs no recursion.
    """
    below: dict[int, list[Node]] = {}
    for depth, view in reversed(rows):
        node = Node(view, tuple(reversed(below.pop(depth + 1, []))))
        below.setdefault(depth, []).append(node)
    return list(reversed(below.get(0, [])))
