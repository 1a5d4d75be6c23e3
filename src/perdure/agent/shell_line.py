"""A shell line as its simple commands, those of substitutions, groups and loops among them. Pure; nothing is run.

Made for judging a line before a shell runs it, so it errs on one side: what it does not understand without doubt (here
documents, functions, arrays, arithmetic, `case`, `[[`, `$'…'`) is UnclearLine, and then a person is asked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

MAX_CHARS = 20_000
MAX_DEPTH = 10  # substitutions and groups in one another

_BLANKS, _META = " \t", " \t\n;&|()<>"
_LEADING = {"!", "time", "if", "then", "elif", "else", "while", "until", "do", "{"}  # a command follows
_CLOSING = {"fi", "done", "}"}
_UNCLEAR = {"case", "esac", "select", "function", "coproc", "[[", "]]"}
_PARAMETER = re.compile(r"\$\{#?\w+(?:[:%#/^,+=?-][^$`\"'{}\[\]@\\]*)?\}")  # no value in it is evaluated
_VARIABLE = re.compile(r"\$(?:[A-Za-z_]\w*|[0-9?$!#*@-])")
_LOOP_NAME = re.compile(r"(?!.*_proxy$)[a-z_][a-z0-9_]*")  # no program reads such a variable
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=")
_REDIRECTION = re.compile(r"(\d*)(<<<|<<|<>|>>|>\||>&|<&|<|>)|(&>>|&>)")
# A bare brace, and in group 1 the first comma or two dots behind it in the same word: quotes and further braces may
# stand between.
_BRACES = re.compile(r"""\{(?:(?!,|\.\.)(?:[^\s'"\\;&|<>()]|'[^']*'|"(?:[^"\\]|\\.)*"|\\.))*+(,|\.\.)?""", re.DOTALL)
_REFERENCE = re.compile(r"\{[\w-]+\}")  # HEAD@{1}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


class UnclearLine(ValueError):
    """A line that cannot be split without doubt; the message names what is unclear."""


@dataclass
class ShellWord:
    """A word after quotes are removed; an expansion stands in it as it was written."""

    text: str = ""
    is_expanded: bool = False  # the shell may put another text here: $x, $(…), {a,b}
    is_pattern: bool = False  # the shell may put names of files here
    is_quoted: bool = False  # something in it is
    n_bare: int = 0  # characters before the first quote or expansion

    def add(self, text: str, *, bare: bool) -> None:
        """Add characters."""
        self.is_quoted |= not bare
        if not self.is_quoted:
            self.n_bare += len(text)
        self.text += text


@dataclass
class Redirection:
    """A file or descriptor that a command reads or writes."""

    operator: str  # without the number of the descriptor
    target: ShellWord

    @property
    def is_output(self) -> bool:
        """True if it may write."""
        return ">" in self.operator


@dataclass
class SimpleCommand:
    """A program with its arguments."""

    words: list[ShellWord] = field(default_factory=list)
    assignments: list[tuple[str, ShellWord]] = field(default_factory=list)  # name, the whole word
    redirections: list[Redirection] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The words, with one space between them."""
        return " ".join(word.text for word in self.words)


def split_line(line: str) -> list[SimpleCommand]:
    """Return the simple commands of a line, inner ones before the command that they stand in. Raises UnclearLine.

    >>> [command.text for command in split_line("cd src && grep -n 'a b' *.py | head -$(cat n)")]
    ['cd src', 'grep -n a b *.py', 'cat n', 'head -$(cat n)']
    """
    if len(line) > MAX_CHARS:
        raise UnclearLine(f"it has more than {MAX_CHARS:,} characters")
    if _CONTROL.search(line):
        raise UnclearLine("it has control characters")
    if "$\\\n" in line:
        raise UnclearLine("a line break after `$`")
    reader = _Reader(line)
    reader.read_list("")
    return reader.commands


class _Reader:
    """Reads one line from the left to the right."""

    def __init__(self, line: str, depth: int = 0) -> None:
        self.line, self.at, self.depth = line, 0, depth
        self.commands: list[SimpleCommand] = []

    def peek(self, n_chars: int = 1) -> str:
        return self.line[self.at : self.at + n_chars]

    def read_list(self, closing: str) -> None:  # noqa: PLR0912 - one branch for each sign of the grammar
        """Read commands until the closing bracket, or to the end of the line."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise UnclearLine("its parts stand too deep in one another")
        command, is_group = SimpleCommand(), False
        while True:
            char = self.peek()
            if char == "" or (char == ")" and closing):
                if char != closing:
                    raise UnclearLine("a bracket is not closed")
                self.at += len(char)
                self._finish(command)
                self.depth -= 1
                return
            if char in _BLANKS:
                self.at += 1
            elif self.peek(2) == "\\\n":
                self.at += 2
            elif redirection := _REDIRECTION.match(self.line, self.at):
                self._read_redirection(command, redirection)
            elif char in "\n;&|":
                if self.peek(2) == ";;":
                    raise UnclearLine("`;;`")
                self.at += 1
                self._finish(command)
                command, is_group = SimpleCommand(), False
            elif char == "#":
                if closing:
                    raise UnclearLine("a comment in brackets")
                end = self.line.find("\n", self.at)
                self.at = len(self.line) if end < 0 else end
            elif char == "(":
                if command.words or command.assignments or is_group:
                    raise UnclearLine("a bracket after a word")
                self.at += 1
                if self.peek() == "(":
                    raise UnclearLine("arithmetic")
                self.read_list(")")
                is_group = True
            elif char == ")":
                raise UnclearLine("a bracket that was not opened")
            elif is_group:
                raise UnclearLine("a word after a bracket")
            else:
                command.words.append(self._read_word())

    def _read_redirection(self, command: SimpleCommand, match: re.Match[str]) -> None:
        operator = match[2] or match[3]
        if operator in ("<", ">") and not match[1] and self.line[match.end() : match.end() + 1] == "(":
            word = ShellWord(is_expanded=True)  # <(…) and >(…) are words
            start, self.at = self.at, match.end() + 1
            self.read_list(")")
            word.add(self.line[start : self.at], bare=False)
            command.words.append(word)
            return
        if operator == "<<":
            raise UnclearLine("a here document")
        self.at = match.end()
        while self.peek() in _BLANKS and self.peek():
            self.at += 1
        if not self.peek() or self.peek() in _META:
            raise UnclearLine("a redirection without a file")
        command.redirections.append(Redirection(operator, self._read_word()))

    def _read_word(self) -> ShellWord:
        word, plain_until = ShellWord(), 0  # before that place, no brace begins an expansion
        while (char := self.peek()) and char not in _META:
            if char == "'":
                end = self.line.find("'", self.at + 1)
                if end < 0:
                    raise UnclearLine("a quote is not closed")
                word.add(self.line[self.at + 1 : end], bare=False)
                self.at = end + 1
            elif char == "\\" and self.peek(2)[1:] == "\n":
                self.at += 2  # the line goes on
            elif char == '"':
                self.at += 1
                self._read_quoted(word)
            elif char == "\\":
                if len(self.peek(2)) < 2:
                    raise UnclearLine("a backslash at the end")
                word.add(self.line[self.at + 1], bare=False)
                self.at += 2
            elif char in "$`":
                self._read_expansion(word, bare=True)
            else:
                word.is_pattern |= char in "*?["
                if char == "{" and not word.is_expanded and self.at >= plain_until and not self._is_reference(word):
                    braces = _BRACES.match(self.line, self.at)
                    word.is_expanded, plain_until = bool(braces and braces[1]), braces.end() if braces else 0
                word.add(char, bare=True)
                self.at += 1
        if self.peek() == "(" or (self.peek() in "<>" and self.peek() and self.peek(2)[1:] == "("):
            raise UnclearLine("a bracket in a word")
        return word

    def _is_reference(self, word: ShellWord) -> bool:
        return word.text.endswith("@") and bool(_REFERENCE.match(self.line, self.at))

    def _read_quoted(self, word: ShellWord) -> None:
        """Read to the closing double quote."""
        while (char := self.peek()) != '"':
            if not char:
                raise UnclearLine("a quote is not closed")
            if char == "\\" and self.peek(2)[1:] == "\n":
                self.at += 2
            elif char == "\\" and self.peek(2)[1:] in ("$", "`", '"', "\\"):
                word.add(self.line[self.at + 1], bare=False)
                self.at += 2
            elif char in "$`":
                self._read_expansion(word, bare=False)
            else:
                word.add(char, bare=False)
                self.at += 1
        self.at += 1
        word.is_quoted = True

    def _read_expansion(self, word: ShellWord, *, bare: bool) -> None:
        if self.peek() == "`":
            end = self.line.find("`", self.at + 1)
            inner = self.line[self.at + 1 : end]
            if end < 0 or "\\" in inner:
                raise UnclearLine("backticks")
            reader = _Reader(inner, self.depth)
            reader.read_list("")
            self.commands += reader.commands
            word.add(f"`{inner}`", bare=False)
            self.at = end + 1
        elif self.peek(2) == "$(":
            if self.peek(3) == "$((":
                raise UnclearLine("arithmetic")
            start, self.at = self.at, self.at + 2
            self.read_list(")")
            word.add(self.line[start : self.at], bare=False)
        elif match := _PARAMETER.match(self.line, self.at) or _VARIABLE.match(self.line, self.at):
            word.add(match[0], bare=False)
            self.at = match.end()
        elif self.peek(2) in ("${", "$'", '$"', "$["):
            raise UnclearLine(f"`{self.peek(2)}`")
        else:
            word.add("$", bare=bare)
            self.at += 1
            return
        word.is_expanded = True

    def _finish(self, command: SimpleCommand) -> None:
        """Add a command that was read, without the words of the shell's grammar."""
        words = command.words
        while words and not words[0].is_quoted and words[0].text in _LEADING:
            words.pop(0)
        first = words[0].text if words and not words[0].is_quoted else ""
        if first in _UNCLEAR or (first in _CLOSING and len(words) > 1):
            raise UnclearLine(f"`{first}`")
        if first == "for":
            if len(words) < 3 or words[2].text != "in":
                raise UnclearLine("`for`")
            if not _LOOP_NAME.fullmatch(words[1].text):
                command.assignments.append((words[1].text, words[1]))  # it may be PATH
            words.clear()
        elif first in _CLOSING:
            words.clear()
        while words and (match := _ASSIGNMENT.match(words[0].text)) and words[0].n_bare >= match.end():
            command.assignments.append((match[1], words.pop(0)))
        if words and re.match(r"\w+\[", words[0].text):
            raise UnclearLine("an array")
        if words or command.assignments or command.redirections:
            self.commands.append(command)
