"""Every recorded transcript of real clients, where they are at hand.

The expected numbers were counted from the raw lines with json and collections.Counter alone: `assistant` for Claude
Code is the number of distinct message ids, for Codex the number of maximal runs of the agent's items.
"""

import json
from collections import Counter
from pathlib import Path

import pytest

from perdure.capture.lines import Line
from perdure.formats import detect, emit, find_abandoned, identify, is_append_only, parse

FOLDER = Path(__file__).parents[3].parent / "shared" / "data" / "transcripts"
RUNTIME = {
    "claude_code": "claude-code",
    "codex": "codex",
    "pi": "pi",
    "copilot_cli": "copilot-cli",
    "gemini_cli_json": "gemini-cli",
}
pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no recorded transcripts in {FOLDER}"),
]
FILES = sorted(FOLDER.glob("*/*.json*"))


def lines_of(data: bytes) -> list[Line]:
    lines, offset = [], 0
    for raw in data.split(b"\n"):
        lines.append(Line(offset, raw))
        offset += len(raw) + 1
    return lines if lines[-1].raw else lines[:-1]


def bytes_of(path: Path) -> bytes:
    """The bytes that would be captured."""
    data = path.read_bytes()
    return (
        data
        if is_append_only(RUNTIME[path.parent.name], data)
        else b"".join(row + b"\n" for row in emit("gemini-cli", data)[0][1])
    )


def counted(turns):
    parts = Counter(part.kind for turn in turns for part in turn.parts)
    roles = Counter(turn.role for turn in turns)
    tokens = sum(turn.n_tokens for turn in turns)
    return (*(roles[r] for r in ("user", "assistant", "tool", "system")), parts["call"], parts["result"], tokens)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name[-30:])
def test_each_is_recognised_and_accounted_for(path):
    """Also from any 3,000 first bytes; every line belongs to one turn or is counted."""
    runtime = RUNTIME[path.parent.name]
    data = path.read_bytes()
    assert detect(data) == detect(data[:3_000]) == runtime
    assert identify(runtime, data[:65_536], "copy.jsonl") == identify(runtime, data, "copy.jsonl")
    lines = lines_of(bytes_of(path))
    parsed = parse(runtime, lines)
    owned = [span for turn in parsed.turns for span in turn.lines]
    assert (parsed.malformed, parsed.n_forgotten) == ((), 0)
    assert len(owned) == len(set(owned))
    assert len(owned) + sum(parsed.skipped.values()) == len(lines)
    ids = [turn.native_id for turn in parsed.turns if turn.native_id]
    assert len(ids) == len(set(ids))
    assert all(turn.stated_at for turn in parsed.turns)


@pytest.mark.parametrize(
    ("name", "expected", "n_persons", "n_threads"),
    [
        # user, assistant, tool, system, calls, results, tokens
        ("claude_code/*e0a6db83*", (23, 157, 148, 0, 148, 148, 28_537_288), 15, 0),
        ("claude_code/*634355e9*", (29, 99, 94, 0, 94, 94, 13_165_111), 3, 0),
        ("claude_code/*fe5e1c67*", (8, 170, 167, 0, 167, 167, 3_838_581), 2, 5),
        ("claude_code/*5c0375b4*", (4, 20, 21, 0, 21, 21, 375_764), 1, 2),
        ("claude_code/*67d765b5*", (9, 61, 61, 0, 61, 61, 6_666_953), 5, 0),
        ("codex/*019ed893*", (19, 276, 441, 2, 445, 441, 34_382_115), 17, 0),
        ("codex/*019efedf*", (13, 35, 66, 1, 70, 66, 2_796_831), 10, 0),
        ("codex/*019f518a*", (31, 31, 1, 1, 1, 1, 1_062_253), 0, 0),
        ("pi/*", (88, 453, 373, 0, 391, 373, 47_609_906), 88, 0),
        ("copilot_cli/*c3f091b3*", (4, 56, 61, 4, 61, 61, 41_776), 4, 0),
        ("copilot_cli/*10fb4666*", (1, 54, 68, 1, 68, 68, 19_254), 1, 0),
        ("gemini_cli_json/*faff42ab*", (2, 4, 0, 0, 2, 2, 49_267), 2, 0),
        ("gemini_cli_json/*fa4593e0*", (2, 2, 0, 0, 1, 1, 24_329), 1, 0),
    ],
)
def test_counts_of_each_transcript_match(name, expected, n_persons, n_threads):
    (path,) = FOLDER.glob(name)
    turns = parse(RUNTIME[path.parent.name], lines_of(bytes_of(path))).turns
    assert counted(turns) == expected
    assert sum(turn.role == "user" and turn.author == "person" for turn in turns) == n_persons
    assert len({turn.thread for turn in turns} - {""}) == n_threads


def test_titles_files_and_skills_are_found():
    (path,) = FOLDER.glob("claude_code/*634355e9*")
    parsed = parse("claude-code", lines_of(path.read_bytes()))
    assert parsed.title == "Minimal function comments cleanup"
    assert {skill for turn in parsed.turns for skill in turn.skills} == {
        "code-changes",
        "golang",
        "conventional-commit",
    }
    edited = {
        block["input"]["file_path"]
        for row in map(json.loads, path.read_bytes().splitlines())
        if row["type"] == "assistant"
        for block in row["message"]["content"]
        if block["type"] == "tool_use" and "file_path" in block["input"]
    }
    assert {file for turn in parsed.turns for file in turn.files} == edited


@pytest.mark.parametrize("name", ["claude_code/*67d765b5*", "codex/*019efedf*", "pi/*", "copilot_cli/*10fb4666*"])
def test_a_session_cut_in_two_runs_gives_the_same_words(name):
    """Cut after each tenth line: only the number of the agent's turns may grow, by one at most."""
    (path,) = FOLDER.glob(name)
    runtime, lines = RUNTIME[path.parent.name], lines_of(path.read_bytes())
    whole = parse(runtime, lines)
    words = [part.text for turn in sorted(whole.turns, key=lambda t: t.lines[-1]) for part in turn.parts]
    for cut in range(10, len(lines), max(10, len(lines) // 20)):
        halves = [parse(runtime, lines[:cut]), parse(runtime, lines[cut:])]
        turns = [turn for half in halves for turn in half.turns]
        assert len(whole.turns) <= len(turns) <= len(whole.turns) + 1
        assert sorted(p.text for t in turns for p in t.parts) == sorted(words)


def test_old_pi_file_has_no_abandoned_turns():
    (path,) = FOLDER.glob("pi/*")
    parsed = parse("pi", lines_of(path.read_bytes()))
    assert (parsed.links, find_abandoned(parsed.links)) == ((), frozenset())
