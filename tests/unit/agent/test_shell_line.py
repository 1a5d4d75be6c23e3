"""A shell line is split into its simple commands."""

from __future__ import annotations

import pytest

from perdure.agent.shell_line import MAX_CHARS, UnclearLine, split_line


@pytest.mark.parametrize(("line", "expected"), [
    ("a && b || c; d | e & f", ["a", "b", "c", "d", "e", "f"]),
    ("a 'b; c' \"d && e\" f\\;g", ["a b; c d && e f;g"]),
    ("a $(b `c`) d", ["c", "b `c`", "a $(b `c`) d"]),
    ("A=1 B=$(x) c", ["x", "c"]),
    ("a > b 2>&1 <c", ["a"]),
    ("if a; then b; else c; fi", ["a", "b", "c"]),
    ("for x in $(a); do b $x; done", ["a", "b $x"]),
    ("(a; (b))", ["a", "b"]),
    ("a # b; c\nd", ["a", "d"]),
    ("a#b", ["a#b"]),
    ("a \\\n b", ["a b"]),
    ("", []),
    ("# only a comment", []),
])  # fmt: skip
def test_commands_of_a_line(line: str, expected: list[str]) -> None:
    assert [command.text for command in split_line(line) if command.words] == expected


@pytest.mark.parametrize("line", [
    "a 'b", 'a "b', "a $(b", "a `b", "a)", "a \\", "a <<E\nE", "f() { a; }", "a=(b)", "((1))", "$((1))", "a ;; b",
    "case a in", "[[ a ]]", "select x in a", "a $'b'", "${a@P}", "${a[0]}", "a[0]=b", "a\x00b", "a\rb", "(a) b",
    "a >", "x" * (MAX_CHARS + 1), "$(" * 20 + "a" + ")" * 20, "function f", "coproc a", "$(a # b\n)", "$\\\n(a)",
])  # fmt: skip
def test_what_is_not_clear_is_not_split(line: str) -> None:
    with pytest.raises(UnclearLine):
        split_line(line)


def test_redirections_and_assignments_are_kept() -> None:
    (command,) = split_line("A=1 LC_ALL=C a >b 2>>c <d &>e")
    assert [name for name, _ in command.assignments] == ["A", "LC_ALL"]
    assert [(one.operator, one.target.text, one.is_output) for one in command.redirections] == [
        (">", "b", True), (">>", "c", True), ("<", "d", False), ("&>", "e", True),
    ]  # fmt: skip
