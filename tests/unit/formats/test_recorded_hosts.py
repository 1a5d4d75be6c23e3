"""Sessions that Qwen Code, Kimi Code, Cline and Aider wrote themselves (tests/data/hosts says how).

The expected numbers were counted from the files by hand.
"""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.capture.lines import Line
from perdure.errors import FormatFault
from perdure.formats import detect, emit, find_abandoned, identify, is_append_only, list_new_lines, parse
from perdure.formats.action_facts import find_facts

FOLDER = Path(__file__).parents[2] / "data" / "hosts"
USER_HOME = FOLDER / "home"
AIDER = FOLDER / "tidepool" / ".aider.chat.history.md"
MOVE = "Move the service to port 8642: 8417 belongs to the staging proxy."
COUNT = "How many stations are there?"
(QWEN,) = USER_HOME.glob(".qwen/**/*.jsonl")
(KIMI,) = USER_HOME.glob(".kimi-code/**/main/wire.jsonl")
(KIMI_AGENT,) = USER_HOME.glob(".kimi-code/**/agent-0/wire.jsonl")
CLINE_COUNT, CLINE_MOVE = sorted(USER_HOME.glob(".cline/**/17*.messages.json"), reverse=True)
(CLINE_AGENT,) = USER_HOME.glob(".cline/**/agent_*.messages.json")
FILES = {
    QWEN: "qwen-code",
    KIMI: "kimi-code",
    KIMI_AGENT: "kimi-code",
    CLINE_MOVE: "cline",
    CLINE_COUNT: "cline",
    CLINE_AGENT: "cline",
    AIDER: "aider",
}


def to_lines(rows):
    lines, offset = [], 0
    for raw in rows:
        lines.append(Line(offset, raw))
        offset += len(raw) + 1
    return lines


def read_sessions(path, data=None):
    """(origin, parsed) of each session in a file."""
    data = path.read_bytes() if data is None else data
    runtime = FILES[path]
    if is_append_only(runtime, data):
        sessions = [(identify(runtime, data, str(path)), data.split(b"\n")[:-1])]
    else:
        sessions = emit(runtime, data, path=str(path))
    return [(o, parse(runtime, to_lines(rows), spawned=o.parent_session is not None)) for o, rows in sessions]


@pytest.mark.parametrize("path", FILES, ids=lambda path: "/".join(path.parts[-3:])[-50:])
def test_each_file_is_recognised_and_accounted_for(path):
    data = path.read_bytes()
    assert detect(data, str(path)) == FILES[path]
    assert detect(data) == FILES[path]
    assert detect(data[:700], str(path)) == FILES[path]
    assert is_append_only(FILES[path], data) == (path.name in (QWEN.name, "wire.jsonl"))
    for _, parsed in read_sessions(path):
        assert (parsed.malformed, parsed.n_forgotten) == ((), 0)
        assert all(turn.stated_at for turn in parsed.turns)
        ids = [turn.native_id for turn in parsed.turns if turn.native_id]
        assert len(ids) == len(set(ids))
        assert find_abandoned(parsed.links) == frozenset()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        # user, assistant, tool, calls, results, failed results, tokens
        (QWEN, (2, 6, 5, 5, 5, 1, 6 * 1240)),
        (KIMI, (5, 6, 5, 5, 5, 1, 6 * 1240)),
        (KIMI_AGENT, (3, 2, 1, 1, 1, 0, 2 * 1240)),
        (CLINE_MOVE, (1, 4, 4, 4, 4, 1, 4 * 1240)),
        (CLINE_COUNT, (1, 2, 1, 1, 1, 0, 2 * 1240)),
        (CLINE_AGENT, (1, 1, 0, 0, 0, 0, 1240)),
        (AIDER, (2, 3, 3, 0, 3, 0, 0)),
    ],
)
def test_counts_of_each_file_match(path, expected):
    turns = [turn for _, parsed in read_sessions(path) for turn in parsed.turns]
    roles = Counter(turn.role for turn in turns)
    parts = [part for turn in turns for part in turn.parts]
    kinds = Counter(part.kind for part in parts)
    n_failed = sum(part.is_error for part in parts)
    n_tokens = sum(turn.n_tokens for turn in turns)
    counts = (*(roles[role] for role in ("user", "assistant", "tool")), kinds["call"], kinds["result"], n_failed)
    assert (*counts, n_tokens) == expected
    assert {part.name for part in parts if part.kind == "result"} <= {
        *(part.name for part in parts if part.kind == "call"),
        *(["aider"] if path == AIDER else []),
    }


@pytest.mark.parametrize(
    ("path", "typed"),
    [
        (QWEN, [MOVE, COUNT]),
        (KIMI, [MOVE, COUNT]),
        (KIMI_AGENT, []),
        (CLINE_MOVE, [MOVE]),
        (CLINE_COUNT, [COUNT]),
        (CLINE_AGENT, []),
        (AIDER, [MOVE, COUNT]),
    ],
)
def test_only_the_typed_words_are_a_persons(path, typed):
    turns = [turn for _, parsed in read_sessions(path) for turn in parsed.turns]
    assert [turn.text() for turn in turns if turn.author == "person"] == typed


@pytest.mark.parametrize(("path", "parent"), [(KIMI_AGENT, KIMI), (CLINE_AGENT, CLINE_COUNT)])
def test_a_sub_agent_names_its_session(path, parent):
    ((agent, _),), ((origin, _),) = read_sessions(path), read_sessions(parent)
    assert agent.parent_session == agent.conversation == origin.session
    assert agent.session != origin.session


@pytest.mark.parametrize("path", [QWEN, KIMI, CLINE_MOVE])
def test_facts_of_action_come_from_each_client(path):
    """The command that failed, the form that worked, and the file that was edited."""
    ((_, parsed),) = read_sessions(path)
    facts = find_facts(parsed.turns, "/home/mira/tidepool", has_status=True)
    kinds = {fact.kind for drafts in facts.values() for fact in drafts}
    assert {"failed", "worked", "edited"} <= kinds


def test_aider_tells_the_edited_files_and_keeps_quotes():
    (_, moved), (_, counted) = read_sessions(AIDER)
    assert [turn.files for turn in moved.turns if turn.files] == [("tides.py",)]
    assert "> this line is quoted in an answer" in moved.turns[1].text()
    assert moved.turns[1].model == counted.turns[1].model == "openai/scripted-1"
    assert [parsed.skipped for parsed in (moved, counted)] == [{"header": 1, "banner": 1}] * 2


@pytest.mark.parametrize("path", FILES, ids=lambda path: "/".join(path.parts[-3:])[-50:])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_file_cut_or_damaged_anywhere_never_raises(path, data):
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    torn = whole[:cut] + data.draw(st.binary(max_size=6).map(lambda b: b.replace(b"\n", b"")))
    runtime = detect(torn, str(path))
    if runtime is not None:
        identify(runtime, torn, str(path))
    if FILES[path] in ("qwen-code", "kimi-code"):
        rows = torn.split(b"\n")
        parsed = parse(FILES[path], to_lines(rows))
        assert len(parsed.malformed) <= 1
        return
    try:
        emitted = emit(FILES[path], torn, path=str(path))
    except FormatFault:
        return
    for _, rows in emitted:
        assert parse(FILES[path], to_lines(rows)).malformed == ()


@pytest.mark.parametrize("path", [QWEN, KIMI, KIMI_AGENT], ids=["qwen", "kimi", "kimi-agent"])
def test_an_append_keeps_the_earlier_turns_and_ids(path):
    rows = path.read_bytes().split(b"\n")[:-1]
    ((_, whole),) = read_sessions(path)
    ids = [turn.native_id for turn in whole.turns]
    for cut in range(1, len(rows)):
        head, tail = (parse(FILES[path], to_lines(half)).turns for half in (rows[:cut], rows[cut:]))
        assert [turn.native_id for turn in head] == ids[: len(head)]
        words = sorted(part.text for turn in (*head, *tail) for part in turn.parts)
        assert words == sorted(part.text for turn in whole.turns for part in turn.parts)


def test_a_grown_history_of_aider_adds_lines_only():
    """At each line of the file: what was emitted stays, but the last block of a session, which comes again."""
    data = AIDER.read_bytes()
    stored: dict[str, list[bytes]] = {}
    ends = [i + 1 for i, byte in enumerate(data) if byte == 10]
    for end in ends:
        try:
            emitted = emit("aider", data[:end], path=str(AIDER))
        except FormatFault:
            continue
        for origin, lines in emitted:
            kept = stored.setdefault(origin.session, [])
            kept += list_new_lines("aider", kept, lines, is_live=False)
    whole = emit("aider", data, path=str(AIDER))
    for origin, lines in whole:
        expected = parse("aider", to_lines(lines)).turns
        grown = parse("aider", to_lines(stored[origin.session])).turns
        assert [(t.native_id, t.author, t.parts) for t in grown] == [(t.native_id, t.author, t.parts) for t in expected]


def test_a_grown_document_of_cline_keeps_its_lines():
    ((origin, lines),) = emit("cline", CLINE_MOVE.read_bytes(), path=str(CLINE_MOVE))
    document = b'{"agent":"lead","sessionId":"' + origin.session.encode() + b'","messages":['
    for n in range(1, len(lines)):
        ((_, fewer),) = emit("cline", document + b",".join(lines[1:n]) + b"]}", path="x")
        assert fewer[1:] == lines[1:n]


@pytest.mark.parametrize(
    ("text", "author"),
    [
        ("/add a.py", "machine"),
        ("/ask why is it slow?", "person"),
        ("Add file to the chat? (Y)es/(N)o/(A)ll [Yes]: all", "machine"),
        ("why?", "person"),
    ],
)
def test_commands_and_answers_of_aider_are_no_words_of_a_person(text, author):
    history = f"\n# aider chat started at 2026-01-02 03:04:05\n\n#### {text}  \n\nYes.\n".encode()
    ((_, lines),) = emit("aider", history, path="/w/.aider.chat.history.md")
    assert parse("aider", to_lines(lines)).turns[0].author == author
