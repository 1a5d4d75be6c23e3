"""What every command shares: its home, its output for people and for programs, its errors and exit statuses."""

from __future__ import annotations

import functools
import json
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

import click

from perdure.errors import PerdureError, ThinHome, UsageError
from perdure.surfaces.amounts import plural, size
from perdure.surfaces.moments import ago, ahead, day, moment

if TYPE_CHECKING:  # 0.1 s, which a command that the resident home answers does without
    from rich.console import Console

    from perdure.capture.rules import Rules
    from perdure.home import Home

__all__ = [
    "ROLE_STYLES", "Actions", "Shell", "ago", "ahead", "command", "confirmed", "day", "emit", "moment", "plural",
    "progress", "size",
]  # fmt: skip

ROLE_STYLES = {"user": "bold green", "assistant": "bold blue", "tool": "magenta", "system": "dim"}

Actions = Sequence[tuple[str, str]]  # (command, why)


class Shell:
    """One invocation: where its home is, and how it speaks."""

    def __init__(self, home: str | None, *, as_json: bool) -> None:
        self.home = home
        self.as_json = as_json

    @functools.cached_property
    def out(self) -> Console:
        """Where data goes."""
        return _console(stderr=False)

    @functools.cached_property
    def err(self) -> Console:
        """Where the person is told things."""
        return _console(stderr=True)

    def thin(self) -> Rules | None:
        """The rules of a machine that keeps nothing itself and asks a remote home; None where the home is here."""
        from perdure import config
        from perdure.capture import rules

        place = config.home_path(self.home)
        found = config.load(place)
        return rules.of(place, found, user=found.user, user_home=config.user_home()) if found.remote.url else None

    def open(self, *, create: bool = False, read_only: bool = False, user: str | None = None) -> Home:
        """The home of this invocation, as its own user unless named; says once when its outbox does not drain."""
        from perdure.home import open_home

        opened = open_home(self.home, user=user, create=create, read_only=read_only)
        if opened.writable and (text := opened.alarm()):
            self.note(f"{text}. Run `perdure doctor`.")
        return opened

    def note(self, text: str) -> None:
        """Something the person should know; never on stdout, where data goes."""
        if not self.as_json:
            self.err.print(text, style="yellow", markup=False)

    def answer(
        self, result: Mapping[str, Any], *, next_actions: Actions = (), links: Mapping[str, str] | None = None
    ) -> None:
        """Print an answer for a program (with --json)."""
        envelope = {
            "ok": True,
            "command": click.get_current_context().command_path.partition(" ")[2],
            "result": result,
            "next_actions": [{"command": command, "why": why} for command, why in next_actions],
            "_links": dict(links or {}),
        }
        emit(envelope)

    def suggest(self, actions: Actions) -> None:
        """What to try next, for a person."""
        if actions and not self.as_json:
            width = max(len(command) for command, _ in actions)
            self.out.print()
            for command, why in actions:
                self.out.print(f"  {command:<{width}}  ", end="", style="bold", markup=False)
                self.out.print(why, style="dim", markup=False)


def _console(*, stderr: bool) -> Console:
    from rich.console import Console  # not there on a machine that only captures, whose commands do without

    return Console(stderr=stderr, highlight=False, soft_wrap=True)


def emit(value: Mapping[str, Any]) -> None:
    """One line of JSON on stdout, however strange its strings."""
    try:
        import msgspec

        raw = msgspec.json.encode(_clean(value))
    except ModuleNotFoundError:  # a machine that only captures
        raw = json.dumps(_clean(value), ensure_ascii=False, default=_plain).encode()
    sys.stdout.buffer.write(raw + b"\n")
    sys.stdout.flush()


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {str(key): _clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_clean(item) for item in value]
    return value


def command(name: str, *, epilog: str = "") -> Callable[[Callable[..., None]], click.Command]:
    """A command with --home and --json, whose errors become messages and exit statuses."""

    def wrap(function: Callable[..., None]) -> click.Command:
        @click.command(name, epilog="\b\nExamples:\n" + epilog if epilog else None)
        @click.option("--home", metavar="DIR", help="The home to use (default: PERDURE_HOME, or ~/.perdure).")
        @click.option("--json", "as_json", is_flag=True, help="Answer in JSON, for programs.")
        @functools.wraps(function)
        def run(home: str | None, as_json: bool, **values: Any) -> None:
            shell = Shell(home, as_json=as_json)
            try:
                function(shell, **values)
            except ThinHome as error:
                _fail(shell, ThinHome(f"{error.detail} (there: `{_called(sys.argv[1:])}`)"))
            except PerdureError as error:
                _fail(shell, error)

        return run

    return wrap


def _called(words: Sequence[str]) -> str:
    """A command line as it is to be written at the home.

    >>> _called(["stats", "--home", "/here", "a b"])
    "perdure stats 'a b'"
    """
    kept = [
        word
        for before, word in zip(("", *words), words, strict=False)
        if "--home" not in (before, word) and not word.startswith("--home=")
    ]
    return shlex.join(["perdure", *kept])


def _fail(shell: Shell, error: PerdureError) -> NoReturn:
    if shell.as_json:
        emit({"ok": False, "error": {"code": error.code, "message": str(error), "detail": error.detail}})
    else:
        _say_fault(shell, f"perdure: {error}")
    sys.exit(error.exit_code)


def _say_fault(shell: Shell, text: str) -> None:
    try:
        shell.err.print(text, style="red", markup=False)
    except ModuleNotFoundError:  # a machine that only captures
        click.echo(text, err=True)


@contextmanager
def progress(shell: Shell, label: str, total: int | None, *, in_bytes: bool = False) -> Iterator[Callable[..., None]]:
    """A bar on stderr while something long runs; nothing where nobody watches. What it yields takes how much is
    done, and the total where that is only known now.
    """
    if shell.as_json or not shell.err.is_terminal:
        yield lambda *_: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn  # 20 ms

    measure = DownloadColumn() if in_bytes else TextColumn("{task.completed:,.0f}")
    columns = (TextColumn("{task.description}"), BarColumn(), measure, TimeRemainingColumn())
    with Progress(*columns, console=shell.err, transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done, whole=total: bar.update(task, completed=done, total=whole)


def say_without_effect(shell: Shell, n: int) -> None:
    """Say how many machines and grants came from another home, if any did."""
    if n:
        what = f"{plural(n, 'event')} of machines and grants came along without effect"
        shell.out.print(f"{what}: these count only in the home that made them.", markup=False)


def confirmed(shell: Shell, question: str, *, yes: bool) -> bool:
    """Whether to go on. Without a terminal to ask on, --yes must have been given."""
    if yes:
        return True
    if shell.as_json or not sys.stdin.isatty():
        raise UsageError("this deletes: add --yes to do it without being asked, or --dry-run to see what it would do")
    return click.confirm(question, default=False, err=True)
