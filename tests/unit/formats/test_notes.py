"""Markdown notes."""

from perdure.formats import detect, emit, identify, is_append_only, parse

NOTE = b"""---
title: House
date: 2026-03-01
---
Loose words.

# Garden

## Roses
Cut them in March.

```sh
# not a heading
```

## 2026-04-02 Log
Planted.

## Empty

# Kitchen
Paint it.
"""


def run(as_lines, data, path="notes/house.md"):
    ((origin, lines),) = emit("notes", data, path=path)
    return origin, lines, parse("notes", as_lines(*lines))


def test_sections_become_turns(as_lines):
    origin, _, parsed = run(as_lines, NOTE, "./notes/x/../house.md")
    assert origin.session == "notes/house.md" == identify("notes", NOTE, "notes/house.md").session
    assert [(t.role, t.author, t.text().split("\n")[0], str(t.stated_at.date())) for t in parsed.turns] == [
        ("user", "person", "Loose words.", "2026-03-01"),
        ("user", "person", "## Roses", "2026-03-01"),
        ("user", "person", "## 2026-04-02 Log", "2026-04-02"),
        ("user", "person", "# Kitchen", "2026-03-01"),
    ]
    roses = parsed.turns[1]
    assert [p.kind for p in roses.parts] == ["text", "pasted"]
    assert "# not a heading" in roses.text()
    assert (parsed.title, parsed.skipped) == ("House", {"header": 1, "title": 1})


def test_only_an_edited_section_is_new(as_lines):
    _, before, first = run(as_lines, NOTE)
    _, after, second = run(as_lines, NOTE.replace(b"in March", b"in April"))
    assert [line for line in after if line not in before] == [after[3]]
    ids = [t.native_id for t in first.turns], [t.native_id for t in second.turns]
    assert [a == b for a, b in zip(*ids, strict=True)] == [True, False, True, True]
    assert ids[0][1].split("@")[0] == ids[1][1].split("@")[0]


def test_the_same_note_gives_the_same_lines(as_lines):
    assert run(as_lines, NOTE)[1] == run(as_lines, NOTE.replace(b"\n", b"\r\n"))[1]


def test_the_same_section_twice_is_one(as_lines):
    assert len(run(as_lines, b"# A\nx\n# A\nx\n# A\ny\n")[2].turns) == 2


def test_note_without_headings_is_one_turn(as_lines):
    (turn,) = run(as_lines, "\ufeffcaf\u00e9".encode() + b"\xff")[2].turns
    assert turn.text() == "café\ufffd"
    assert run(as_lines, b"")[2].turns == ()


def test_notes_are_detected_by_name_or_heading():
    assert detect(b"plain words", "a.md") == "notes"
    assert detect(b"# Title\n\nwords") == "notes"
    assert detect(b"plain words") is None
    assert detect(b"# a comment\nx = 1", "setup.py") is None
    assert detect(b"\x00\x01", "a.md") is None
    assert not is_append_only("notes", NOTE)
