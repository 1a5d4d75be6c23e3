"""Read shell commands as forms: which program runs, in which way, with which subcommands, options and arguments. Pure.

Two commands have the same form if they differ only in what changes from call to call: numbers, ids, dates, temporary
paths and long texts. A line that is more than plain commands (a loop, a here-document, a substitution) has no form, as
nobody can tell what of it failed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from perdure.regex import lazy_re

MAX_COMMAND_CHARS = 2000  # a longer line has no form
_MAX_COMMANDS = 8  # of one line
VOLATILE = "#"  # stands for an argument that changes from call to call

_TOKEN = lazy_re(
    r"""(?P<space>[^\S\n]+|\\\n)|(?P<operator>&&|\|\||\|&|[;|\n]|&(?!>))|(?P<redirect>(?:\d|&)?>>?(?:&\d|&-)?|\d?<(?!<))"""
    r"""|(?P<word>(?:'[^']*'|"(?:[^"\\]|\\.)*"|\\.|[^\s'"\\;|&<>()])+)|(?P<other>.)""",
    re.S,
)
_COMPOUND = lazy_re(r"<<|\$\(|`|<\(|\A\s*(?:for|while|until|if|case|function)\s|\$'")
_QUOTED = lazy_re(r"""'([^']*)'|"((?:[^"\\]|\\.)*)"|\\(.)""", re.S)
_ASSIGNMENT = lazy_re(r"[A-Za-z_]\w*=")
_VERB = lazy_re(r"[a-z][a-z0-9]*(?:[-:][a-z0-9]+)*")
_VOLATILE_WORD = lazy_re(
    r"\A#?\d+(?:[.:]\d+)*[a-z]{0,2}\Z|\b(?=[a-f]*\d)[0-9a-f]{7,40}\b|\d{6}|\d{4}-\d\d|/tmp/|/var/folders/|\s|://"
)
_PLAIN_PATH = lazy_re(r"(?:[\w.@+~-]*/)+[\w.@+-]+")
_MAX_WORD_CHARS = 300
_PREFIXES = ("sudo", "time", "nohup", "env", "command", "exec", "xvfb-run")  # of a command, and not its program
_SHELLS = ("bash", "sh", "zsh")
_RUNNERS = (  # the way in which another program is run
    ("python", "-m"), ("python3", "-m"), ("uv", "run"), ("poetry", "run"), ("pipenv", "run"), ("pdm", "run"),
    ("hatch", "run"), ("npx",), ("bunx",), ("pnpm", "exec"), ("pnpm", "dlx"), ("yarn", "exec"), ("yarn", "dlx"),
    ("npm", "exec"), ("bundle", "exec"), ("mise", "exec"),
)  # fmt: skip
_PROBES = frozenset(  # a failure of theirs answers a question, and is no mistake
    (
        "command which type whereis test [ [[ grep egrep fgrep rg ag ls cat head tail sed awk find fd diff cmp "
        "pgrep ps kill pkill stat file echo printf true false sleep cd pwd mkdir rmdir rm cp mv ln touch tree wc "
        "sort uniq cut tr xargs tee export set source . wait exit date id whoami env printenv du df nl less jq "
        "realpath readlink basename dirname lsof ss netstat tmux timeout chmod "
    ).split()
)


@dataclass(frozen=True, slots=True)
class CommandForm:
    """One plain command."""

    text: str  # as it was written, without the changes of folder before it
    way: tuple[str, ...]  # the words that run the program: ".venv/bin/python -m", "npx", the folder of a script
    program: str  # its name, without a folder: "pytest", "git"
    verbs: tuple[str, ...]  # at most two plain words behind the program: ("run", "build")
    options: tuple[str, ...]  # the names of its options, in order
    words: tuple[str, ...]  # everything behind the verbs, in order; VOLATILE for what changes

    @property
    def path(self) -> str:
        """The program as it was written, with its folder."""
        folder = self.way[-1] if self.way and self.way[-1].endswith("/") else ""
        return folder + self.program

    @property
    def run_as(self) -> str:
        """The words that run the program, without its arguments."""
        return " ".join((*self.way, self.program)).replace("/ ", "/")

    @property
    def paths(self) -> tuple[str, ...]:
        """The arguments that are plain paths with a folder."""
        return tuple(word.removeprefix("./") for word in self.words if _PLAIN_PATH.fullmatch(word))

    @property
    def is_probe(self) -> bool:
        """True if the command only asks something: its failure is an answer."""
        return self.program in _PROBES or (self.program == "git" and self.verbs[:1] in (("config",), ("rev-parse",)))

    @property
    def is_help(self) -> bool:
        """True if the command only prints how the program is used."""
        return any(option in ("--help", "-h", "--version") for option in self.options) or self.verbs[-1:] == ("help",)

    @property
    def whole(self) -> str:
        """The form of the whole command; equal for commands that do the same in the same way."""
        return " ".join((*self.way, self.program, *self.verbs, *self.words))


class _Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


def read_commands(line: str) -> tuple[tuple[CommandForm, str], ...]:
    """Return (form, the operator behind it) of each plain command of a line; none if anything in it is not understood.

    >>> [(form.whole, operator) for form, operator in read_commands("cd src && npm run build 2>&1 | tail -5")]
    [('cd src', '&&'), ('npm run build', '|'), ('tail -5', '')]
    """
    if len(line) > MAX_COMMAND_CHARS or _COMPOUND.search(line):
        return ()
    tokens = [_Token(str(m.lastgroup), m[0], m.start(), m.end()) for m in _TOKEN.finditer(line.strip())]
    if any(token.kind == "other" for token in tokens):
        return ()
    forms: list[tuple[CommandForm, str]] = []
    for piece, operator in _split_pieces(tokens):
        form = _read_form(piece, line.strip())
        if form is not None:
            forms.append((form, operator))
    return tuple(forms) if len(forms) <= _MAX_COMMANDS else ()


def read_outcomes(line: str) -> tuple[CommandForm, ...]:
    """Return the commands of a line whose outcome is the outcome of the line: all must succeed for it to succeed.

    None where a pipe, a `;` or a `||` hides the status of a command. A change of folder is left out.

    >>> [form.whole for form in read_outcomes("cd src && make check 2>&1")], read_outcomes("make check | tail -5")
    (['make check'], ())
    """
    commands = read_commands(line)
    if not commands or any(operator not in ("&&", "") for _, operator in commands):
        return ()
    return tuple(form for form, _ in commands if form.program not in ("cd", "export", "source", "."))


def _split_pieces(tokens: list[_Token]) -> Iterator[tuple[list[_Token], str]]:
    """Yield (the tokens of one command, the operator behind it)."""
    piece: list[_Token] = []
    for token in tokens:
        if token.kind == "operator":
            if piece:
                yield piece, ";" if token.text == "\n" else token.text
            piece = []
        else:
            piece.append(token)
    if piece:
        yield piece, ""


def _read_form(piece: list[_Token], line: str) -> CommandForm | None:
    words, n_skipped = [], 0
    skips_next = False
    for token in piece:
        if token.kind == "redirect":
            skips_next = not token.text.endswith(tuple("0123456789-"))
        elif token.kind == "word":
            if skips_next:
                skips_next = False
            else:
                words.append(token)
    while words and (_ASSIGNMENT.match(words[0].text) or _unquote(words[0].text) in _PREFIXES) and len(words) > 1:
        if _unquote(words[0].text) == "command" and words[1].text.startswith("-"):
            break  # `command -v X` asks for X
        words.pop(0)
        n_skipped += 1
    if len(words) > 2 and words[0].text == "timeout":
        words = words[2:]
    if not words:
        return None
    end = max(token.end for token in words)
    return _build_form(
        line[piece[0].start if n_skipped else words[0].start : end].strip(), [_unquote(w.text) for w in words]
    )


def _build_form(text: str, words: list[str]) -> CommandForm:
    way: list[str] = []
    while runner := _match_runner(words):
        way += words[:runner]
        words = words[runner:]
    folder, _, program = words[0].rpartition("/")
    if folder or words[0].startswith("/"):
        way.append(_to_stable(f"{folder}/"))
    rest = words[1:]
    verbs: list[str] = []
    while rest and len(verbs) < 2 and _VERB.fullmatch(rest[0]):
        verbs.append(rest.pop(0))
    options = tuple(word.partition("=")[0] for word in rest if word.startswith("-") and len(word) > 1)
    return CommandForm(text, tuple(way), program, tuple(verbs), options, tuple(map(_to_stable, rest)))


def _match_runner(words: list[str]) -> int:
    """Return how many words before a program only run it: 0 if the first word is the program."""
    name = words[0].rpartition("/")[2]
    if name in _SHELLS and len(words) > 1 and not words[1].startswith("-"):
        return 1
    for runner in _RUNNERS:
        n_words = len(runner)
        if (name, *words[1:n_words]) == runner and len(words) > n_words and not words[n_words].startswith("-"):
            return n_words
    return 0


def _to_stable(word: str) -> str:
    """Return a word as it stands in a form: VOLATILE if it changes from call to call.

    >>> [_to_stable(word) for word in ("src/a.py", "4711", "/tmp/x.md", "--limit=20", "fix the port")]
    ['src/a.py', '#', '#', '--limit=#', '#']
    """
    if word.startswith("-") and "=" in word:
        name, _, value = word.partition("=")
        return f"{name}={_to_stable(value)}"
    return VOLATILE if len(word) > _MAX_WORD_CHARS or _VOLATILE_WORD.search(word) else word


def _unquote(word: str) -> str:
    """Return a word without its quotes and escapes.

    >>> _unquote("--title='a b'")
    '--title=a b'
    """
    return _QUOTED.sub(lambda quoted: next(filter(None, quoted.groups()), ""), word)
