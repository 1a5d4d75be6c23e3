"""What is looked for in transcripts beside a recall."""

from perdure.surfaces import recall_sources


def test_strings_of_a_line_are_found_unless_nested_too_deep():
    assert sorted(recall_sources._walk_strings(b'{"a":["x",{"b":"y"}],"c":1}')) == ["x", "y"]
    assert list(recall_sources._walk_strings(b"[" * 100_000 + b'"x"' + b"]" * 100_000)) == []
    assert list(recall_sources._walk_strings(b"{broken")) == []
