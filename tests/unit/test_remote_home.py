"""What joining writes into the settings, and what a remote home's answers become."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import remote_home
from perdure.capture import credential
from perdure.capture.credential import Credential
from perdure.capture.policy import CaptureRules, RemoteSettings
from perdure.errors import ConfigFault, NotFound, RemoteNonsense, UsageError
from perdure.surfaces.cli.join import add_remote, remove_remote
from perdure.types import Filters, Node, RunView
from rig.remote import SECRET, ScriptedRemote

THERE = RemoteSettings("https://home.example:8443", "/a b/ca.pem", True)

# the settings -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "before",
    ["", "# only a word\n", 'agent = "m"', '[capture]\nexclude = ["~/x"]  # mine\n\n[hooks]\nlimit_ms = 500\n',
     "[models.prices.a]\ninput = 1\n", 'floor.place = "Lisbon"\r\n'],
)  # fmt: skip
def test_address_is_added_and_removed(before: str) -> None:
    made = add_remote(before, THERE)
    assert tomllib.loads(made) == {**tomllib.loads(before), "remote": THERE._asdict()}
    assert add_remote(made, THERE) == made
    assert tomllib.loads(remove_remote(made)) == tomllib.loads(before)
    for row in before.splitlines():
        assert row in made and row in remove_remote(made)


def test_existing_address_is_replaced_in_its_place() -> None:
    before = 'agent = "m"\n[ remote ] # theirs\n# why\nurl = "http://old"\nplain = true\n[hooks]\nlimit_ms = 5\n'
    made = add_remote(before, RemoteSettings("https://new"))
    assert made == 'agent = "m"\n[ remote ] # theirs\n# why\nurl = "https://new"\n[hooks]\nlimit_ms = 5\n'
    assert tomllib.loads(remove_remote(made)) == {"agent": "m", "hooks": {"limit_ms": 5}}
    assert add_remote('remote.url = "https://a"\n', RemoteSettings("https://new")) == 'remote.url = "https://new"\n'


@pytest.mark.parametrize("before", ['remote = {url = "https://a"}\n', "[remote\n", "= 1\n"])
def test_invalid_settings_are_refused(before: str) -> None:
    with pytest.raises(ConfigFault):
        add_remote(before, THERE)


def test_settings_without_an_address_stay_as_they_are() -> None:
    assert remove_remote('a = "[remote]"\n') == 'a = "[remote]"\n'


# answers ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def there(tmp_path: Path) -> Iterator[tuple[ScriptedRemote, CaptureRules]]:
    with ScriptedRemote() as server:
        credential.write_credential(tmp_path, Credential("ada", "m1", "laptop", SECRET, server.url))
        yield server, CaptureRules(tmp_path, "ada", "laptop", (), tmp_path, 1000, remote=RemoteSettings(server.url))


def view(name: str) -> RunView:
    at = datetime(2026, 1, 15, 9, tzinfo=UTC)
    fields = {
        "run_id": name, "user": "ada", "machine": "m", "runtime": "messages", "agent": "a", "project": None,
        "conversation": "c", "session": "c", "generation": 0, "parent_run_id": None, "root_run_id": name,
        "sidechain": False, "fork": False, "tags": (), "readable_by": (), "models": (), "title": "", "intent": "",
        "started_at": at, "ended_at": at, "captured_at": at, "duration_ms": 0, "skipped": {}, "path": None,
        "cwd": None, "from_offset": 0, "to_offset": 9, "jsonl_bytes": 9, "jsonl_sha256": "",
    }  # fmt: skip
    numbers = dict.fromkeys(
        ("n_turns", "n_user", "n_assistant", "n_tool", "n_calls", "n_tokens", "n_forgotten", "n_malformed"), 0
    )
    return RunView(**fields, **numbers)  # type: ignore[arg-type]


def said(run: RunView, depth: int) -> dict:
    return {"depth": depth, "run": {**msgspec.to_builtins(run), "_links": {}}}


def rows(nodes: list[Node]) -> list[tuple[int, str]]:
    found, todo = [], [(node, 0) for node in reversed(nodes)]
    while todo:
        node, depth = todo.pop()
        found.append((depth, node.run.run_id))
        todo += [(child, depth + 1) for child in reversed(node.children)]
    return found


@given(st.lists(st.integers(0, 4), max_size=30))
def test_list_with_depths_becomes_its_trees_again(steps: list[int]) -> None:
    """Each run stands at most one deeper than the one before it, the first at 0, as a walk from the top gives them."""
    listed: list[tuple[int, RunView]] = []
    for number, step in enumerate(steps):
        depth = min(step, listed[-1][0] + 1) if listed else 0
        listed.append((depth, view(f"r{number}")))
    assert rows(remote_home._build_trees(listed)) == [(depth, run.run_id) for depth, run in listed]


def test_a_chain_of_thousands_needs_no_recursion(there: tuple[ScriptedRemote, CaptureRules]) -> None:
    server, rules = there
    server.replies["/api/runs/forest"] = 200, {"items": [said(view(f"r{n}"), n) for n in range(3000)]}
    with remote_home.open_remote_home(rules) as home:
        (top,) = home.runs.forest(Filters(runtimes=("pi",), since_at=datetime(2026, 1, 1, tzinfo=UTC)), limit=500)
    assert len(rows([top])) == 3000
    assert server.asked[-1][2] == {
        "since": ["2026-01-01T00:00:00+00:00"],
        "runtime": ["pi"],
        "limit": ["500"],
        "flat": ["true"],
    }


def hit(turn: str) -> dict:
    return {
        "turn_id": turn, "run_id": "r", "conversation": "c", "title": "t", "runtime": "pi", "machine": "laptop",
        "agent": "a", "project": None, "role": "user", "author": "person", "kind": "text", "text": "words",
        "stated_at": "2026-01-15T09:00:00Z", "score": 2.5,
    }  # fmt: skip


def test_hits_are_paged_until_there_are_enough(there: tuple[ScriptedRemote, CaptureRules]) -> None:
    server, rules = there
    pages = ([hit(f"t{n}") for n in range(100)], "on"), ([hit("t100"), hit("t101")], None)
    server.script = [
        (200, {"result": {"hits": hits, "terms": ["words"], "took_ms": 2.0, "mode": "hybrid"}, "next_cursor": cursor})
        for hits, cursor in pages
    ]
    filters = Filters(
        tags=("x",), runtimes=("pi",), conversations=("c", "d"), files=("a.py",), entities=("Ada",),
        since_at=datetime(2026, 1, 1, tzinfo=UTC), begun_until_at=datetime(2026, 2, 1, tzinfo=UTC),
    )  # fmt: skip
    with remote_home.open_remote_home(rules) as home:
        found = home.search("words", filters=filters, limit=101, mode="hybrid")
    assert [h.turn_id for h in found.hits] == [f"t{n}" for n in range(101)]
    assert (found.terms, found.took_ms, found.hits[0].score) == (("words",), 4.0, 2.5)
    first, second = (msgspec.json.decode(body) for *_, body in server.asked)
    assert first["filters"] == {
        "tags": ["x"], "agent_runtime": ["pi"], "conversation_id": ["c", "d"], "file": ["a.py"], "entity": ["Ada"],
        "stated_at": {"gte": "2026-01-01T00:00:00+00:00"}, "started_at": {"lte": "2026-01-31T23:59:59.999000+00:00"},
    }  # fmt: skip
    assert (first["limit"], "cursor" in first, second["cursor"]) == (100, False, "on")


def test_unsupported_filter_is_refused_without_a_request(there: tuple[ScriptedRemote, CaptureRules]) -> None:
    server, rules = there
    with remote_home.open_remote_home(rules) as home:
        for filters in (Filters(runs=("r",)), Filters(memories=True)):
            with pytest.raises(UsageError):
                home.search("words", filters=filters, limit=5)
        with pytest.raises(UsageError, match="does not scan"):
            home.search("words", scan=True)
    assert server.asked == []


@pytest.mark.parametrize(
    ("answer", "kind"),
    [((404, {"error": {"code": "not-found", "message": "none"}}), NotFound), ((404, b"<html>"), RemoteNonsense),
     ((400, {"error": {"code": "usage-error", "message": "no"}}), UsageError), ((200, {"result": 3}), RemoteNonsense),
     ((200, {"result": {"hits": [{"turn_id": 3}]}}), RemoteNonsense),
     ((200, b"[]"), RemoteNonsense), ((200, {}), RemoteNonsense)],
)  # fmt: skip
def test_malformed_answers_are_refused(
    answer: tuple[int, object], kind: type[Exception], there: tuple[ScriptedRemote, CaptureRules]
) -> None:
    server, rules = there
    server.script = [answer]  # type: ignore[list-item]
    with remote_home.open_remote_home(rules) as home, pytest.raises(kind):
        home.search("words")


def test_home_resolves_the_beginning_of_an_id(there: tuple[ScriptedRemote, CaptureRules]) -> None:
    server, rules = there
    server.replies["/api/resolve/t123"] = 200, {"kind": "turn", "id": "t123456", "run": "01ab", "offset": 7}
    server.replies["/api/resolve/x"] = 404, {"error": {"code": "not-found", "message": "none"}}
    with remote_home.open_remote_home(rules) as home:
        assert home.resolve("t123") == ("turn", "t123456") and home.runs.locate_turn("t123") == ("01ab", 7)
        with pytest.raises(NotFound, match="x"):
            home.resolve("x")
