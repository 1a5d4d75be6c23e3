"""The sample transcripts, written by real clients, say what was counted in them by hand (samples/expected.json)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import formats
from perdure.capture.lines import split_lines
from perdure.surfaces.cli import import_
from perdure.types import ParsedLines

SAMPLES = Path(perdure.__file__).parent / "samples"
EXPECTED: dict[str, dict[str, Any]] = json.loads((SAMPLES / "expected.json").read_text(encoding="utf-8"))
_COMMANDS = ("/compact",)  # typed by a person, but counted apart by hand: an order to the client


def parsed(name: str) -> ParsedLines:
    data = (SAMPLES / name).read_bytes()
    runtime = formats.detect(data[:65536], name)
    assert runtime == name.split("/", maxsplit=1)[0]
    origin = formats.identify(runtime, data[:65536], str(SAMPLES / name))
    return formats.parse(runtime, split_lines(data), spawned=origin.parent_session is not None and not origin.fork)


@pytest.mark.parametrize("name", EXPECTED)
def test_counts_of_the_samples_match_a_count_by_hand(name: str) -> None:
    wanted, found = EXPECTED[name], parsed(name)
    typed = [t for t in found.turns if t.author == "person" and not t.text().startswith(_COMMANDS)]
    parts = [part for turn in found.turns for part in turn.parts]
    results = [part for part in parts if part.kind == "result"]
    assert len((SAMPLES / name).read_bytes().splitlines()) == wanted["lines"]
    assert found.malformed == ()
    assert len(typed) == wanted["human_turns"]
    assert sum(part.kind == "call" for part in parts) == wanted["tool_calls"]
    assert len(results) == wanted["tool_results"]
    assert sum(part.is_error for part in results) == wanted["failed_tool_results"]
    if not name.startswith("codex"):  # Codex writes no message ids: a turn is what stands between two outputs
        assert sum(turn.role == "assistant" for turn in found.turns) == wanted["assistant_messages"]


@pytest.mark.parametrize("name", EXPECTED)
def test_every_written_file_is_found(name: str) -> None:
    touched = {path for turn in parsed(name).turns for path in turn.files}
    for path in EXPECTED[name]["files_written"]:
        assert any(found == path or found.endswith("/" + path) for found in touched), path


def test_the_branch_that_pi_left_is_marked() -> None:
    """Lines 9 to 14 of the pi file are the branch that was given up: two human turns, three answers, one result."""
    (name,) = [name for name in EXPECTED if name.startswith("pi/")]
    found, wanted = parsed(name), EXPECTED[name]
    left = formats.find_abandoned(found.links)
    turns = [turn for turn in found.turns if turn.link and turn.link[0] in left]
    lines = [line.offset for line in split_lines((SAMPLES / name).read_bytes())]
    assert [lines.index(turn.offset) + 1 for turn in turns] == wanted["abandoned_lines"]
    live = [t for t in found.turns if t.author == "person" and t not in turns]
    assert len(live) == wanted["live_human_turns"]


def test_the_made_up_key_is_masked_in_everything_derived(tmp_path: Path) -> None:
    """The README of the samples says where it stands: four times in the Claude Code file, and nowhere else."""
    with perdure.open(tmp_path / "home") as home:
        home.import_files([SAMPLES])
        home.upkeep.catch_up()
        home.index().db.pragma("wal_checkpoint(TRUNCATE)")
        for path in tmp_path.rglob("*"):
            if path.is_file() and "archive" not in path.parts:
                assert b"FAKE0FAKE0" not in path.read_bytes(), path
                assert b"fake0fake0" not in path.read_bytes(), path


def test_sub_agent_is_a_child_of_its_spawner(tmp_path: Path) -> None:
    with perdure.open(tmp_path / "home") as home:
        home.import_files([SAMPLES / "claude-code"])
        home.upkeep.catch_up()
        (tree,) = home.runs.forest()
        (child,) = tree.children
        assert child.run.session == f"{tree.run.session}/ad7a17d0ebc94e8b4"
        assert child.run.parent_run_id == child.run.root_run_id == tree.run.run_id
        assert child.run.conversation == tree.run.conversation


def test_samples_are_the_shipped_ones_unless_a_folder_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no folder of that name; one that is there is meant."""
    monkeypatch.chdir(tmp_path)
    assert import_._resolve_samples(Path("samples")) == SAMPLES
    (tmp_path / "samples").mkdir()
    assert import_._resolve_samples(Path("samples")) == Path("samples")


def test_an_import_parses_each_run_once(opened, monkeypatch) -> None:
    """The index and the rules of statements read the runs in turn, though not one whole run stays in memory."""
    monkeypatch.setattr("perdure.archive.archive._CACHED_TURN_BYTES", 0)
    home = opened()
    parse, n_parsed = home.archive._parse, Counter[str]()

    def count(run, lines):
        n_parsed[run.run_id] += 1
        return parse(run, lines)

    monkeypatch.setattr(home.archive, "_parse", count)
    home.import_files([SAMPLES])
    assert len(n_parsed) > 3 and set(n_parsed.values()) == {1}
    assert not home.archive._typed_turns
