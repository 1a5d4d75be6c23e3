"""What is looked for in transcripts beside a recall."""

from perdure.surfaces.page import gathered


def test_texts_of_a_line_are_found_and_a_line_nested_without_end_has_none():
    assert sorted(gathered._strings(b'{"a":["x",{"b":"y"}],"c":1}')) == ["x", "y"]
    assert list(gathered._strings(b"[" * 100_000 + b'"x"' + b"]" * 100_000)) == []
    assert list(gathered._strings(b"{broken")) == []
