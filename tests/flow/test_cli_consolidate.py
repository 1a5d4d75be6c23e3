"""`perdure consolidate` and `perdure memories utility` as a person and a program see them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner

from perdure.archive import memory_events
from perdure.memories import proposals
from perdure.memories.store import MemoryDraft
from perdure.surfaces.cli import cli
from perdure.surfaces.cli.common import format_time

SAID = datetime(2026, 1, 1, 9, tzinfo=UTC)


@pytest.fixture
def run(home):
    (home.path / "config.toml").write_text('user = "ada"\n')

    def run_(*words: str, code: int = 0):
        result = CliRunner().invoke(cli, [*words, "--home", str(home.path)])
        assert result.exit_code == code, result.output
        return json.loads(result.stdout)["result"] if "--json" in words and not code else result.output

    return run_


@pytest.fixture
def twins(home):
    return [home.remember(f"{who} prefers dark mode.", path=path) for who, path in (("User", "a"), ("The user", "b"))]


def test_command_shows_applies_and_undoes(home, run, twins) -> None:
    shown = run("consolidate")
    assert "2 memories say the same" in shown and "nothing was changed" in shown
    (proposal,) = run("consolidate", "--json")["proposals"]
    assert [one["memory_id"] for one in proposal["memories"]] == [one.memory_id for one in twins]
    assert run("consolidate", "--only", "lift", "--json")["proposals"] == []
    done = run("consolidate", "--apply", proposal["id"], "--json")
    assert len(home.memories.list_memories()) == 1
    assert "No proposals to apply" in run("consolidate", "--apply")
    assert run("consolidate", "--undo", done["event"][:12], "--json")["event"] == done["event"]
    assert len(home.memories.list_memories()) == 2
    assert "there is no consolidation" in run("consolidate", "--undo", code=2)
    for words in (("merge-00000000",), ("--apply", "merge-00000000"), ("--apply", proposal["id"], "--only", "lift")):
        assert "does not exist" in run("consolidate", *words, code=4)


def test_guesses_of_an_earlier_version_go_and_come_back(home, run) -> None:
    """Only the guess is proposed: not what was told, stored, mined or pinned."""
    said = ("The build of the gallery is red.", "I prefer tabs over spaces.", "The roof of the gallery is grey.")
    lines = [json.dumps({"role": "user", "content": text, "timestamp": SAID.isoformat()}) for text in said]
    home.capture("".join(f"{line}\n" for line in lines).encode(), runtime="messages", session="old")
    home.upkeep.catch_up()
    (told,) = home.memories.list_memories()
    assert told.text == said[1]
    source = told.sources
    ways = {said[0]: "stated", said[2]: "stated", "Mira answers by mail": "mined", "The port is 8443": "remembered"}
    drafts = [MemoryDraft(text, how=how, sources=source, path=f"p/{n}") for n, (text, how) in enumerate(ways.items())]
    kept = home.memories.keep_all(drafts, by="rules")
    home.memories.change([kept[1].memory.memory_id], pinned=True)
    (proposal,) = run("consolidate", "--only", "guess", "--json")["proposals"]
    assert [memory["text"] for memory in proposal["memories"]] == [said[0]]
    assert len(home.memories.list_memories()) == 5
    run("consolidate", "--only", "guess", "--apply")
    assert said[0] not in {memory.text for memory in home.memories.list_memories()}
    run("consolidate", "--undo")
    assert len(home.memories.list_memories()) == 5


@pytest.mark.usefixtures("twins")
def test_only_applies_only_that_kind(home, run) -> None:
    assert "No proposals to apply" in run("consolidate", "--apply", "--only", "split")
    assert len(home.memories.list_memories()) == 2
    run("consolidate", "--apply", "--undo", code=2)
    run("consolidate", "--apply")
    run("consolidate", "--undo", "--only", "merge", code=2)
    assert len(home.memories.list_memories()) == 1


@pytest.mark.usefixtures("twins")
def test_proposals_are_computed_once(run, monkeypatch) -> None:
    """At 20,000 memories that takes most of a minute."""
    asked: list[int] = []
    whole = proposals.find_proposals
    monkeypatch.setattr(proposals, "find_proposals", lambda *had, **more: asked.append(1) or whole(*had, **more))
    run("consolidate", "--apply")
    assert asked == [1]


def test_utility_lists_unused_cues_last(home, run) -> None:
    names = {name: home.remember(f"Fact about {name}.", path=name, stated_at=SAID).memory_id for name in "abcd"}
    for n in range(4):
        shown = [names["a"], names["b"], names["c"]] if n < 2 else [names["b"], names["c"]]
        data = {"runtime": "pi", "session": "s", "agent": "", "nonce": f"{n}", "digest": "", "turns": shown}
        home.journal().append(memory_events.INJECTED, data, now=SAID)
        home.journal().append(
            memory_events.USED, memory_events.build_used_data(f"{n}", [names["b"]], used_at=SAID), now=SAID
        )
    found = run("memories", "utility", "--json")
    rows = [(one["path"], one["n_injected"], one["n_used"], one["share"], one["earns"]) for one in found["memories"]]
    assert rows == [
        ("b", 4, 4, 1.0, "earns its place"), ("d", 0, 0, None, "not known yet"),
        ("a", 2, 0, 0.0, "never used"), ("c", 4, 0, 0.0, "never used"),
    ]  # fmt: skip
    assert found["sums"] == {
        "n_memories": 4, "n_injected": 10, "n_used": 4, "n_used_ever": 1, "n_never_used": 2, "n_never_shown": 1,
    }  # fmt: skip
    shown = run("memories", "utility")
    assert "2 were shown and never used" in shown
    best = found["memories"][0]
    figures = f"    4     4   100%   {best['decay']:.2f}  {best['heat']:.2f}  {format_time(SAID)}  {names['b']}"
    assert f"{figures}\n  Fact about b.\n" in shown
    assert max(map(len, shown.splitlines())) < 80


def test_list_by_heat_puts_what_is_used_first(home, run) -> None:
    """Said once, confidence 1. Used now: 0.7 + 0.3 / 2 = 0.85. Not used for 9 days: 0.7 / e^9 = 0.0001."""
    now = datetime.now(UTC)
    home.remember("The older one is used.", path="older", stated_at=now - timedelta(days=10))
    home.remember("The newer one is not.", path="newer", stated_at=now - timedelta(days=9))
    assert [memory["path"] for memory in run("memories", "list", "--json")["memories"]] == ["newer", "older"]
    run("memories", "search", "older", "--touch")
    found = run("memories", "list", "--by-heat", "--json")["memories"]
    assert [memory["path"] for memory in found] == ["older", "newer"]
    assert [memory["heat"] for memory in found] == [pytest.approx(0.85, abs=0.01), pytest.approx(0.0001, abs=0.0001)]
    assert run("memories", "list", "--by-heat").startswith("0.85  The older one is used.")
    assert run("memories", "list").startswith("The newer one is not.")
