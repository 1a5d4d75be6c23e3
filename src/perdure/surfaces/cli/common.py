"""What every command shares: its home, its output for people and for programs, its errors and exit statuses."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

import click
import msgspec
from rich.console import Console

from perdure.errors import PerdureError, UsageError

if TYPE_CHECKING:  # 0.1 s, which a command that the resident home answers does without
    from perdure.home import Home

ROLE_STYLES = {"user": "bold green", "assistant": "bold blue", "tool": "magenta", "system": "dim"}
_AGES = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGE = re.compile(r"(\d{1,6})([mhdw])\Z")

Actions = Sequence[tuple[str, str]]  # (command, why)


class Shell:
    """One invocation: where its home is, and how it speaks."""

    def __init__(self, home: str | None, *, as_json: bool) -> None:
        self.home = home
        self.as_json = as_json
        self.out = Console(highlight=False, soft_wrap=True)
        self.err = Console(stderr=True, highlight=False, soft_wrap=True)

    def open(self, *, create: bool = False, read_only: bool = False) -> Home:
        """The home of this invocation; says once when its outbox does not drain."""
        from perdure.home import open_home

        opened = open_home(self.home, create=create, read_only=read_only)
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


def emit(value: Mapping[str, Any]) -> None:
    """One line of JSON on stdout, however strange its strings."""
    raw = msgspec.json.encode(_clean(value))
    sys.stdout.buffer.write(raw + b"\n")
    sys.stdout.flush()


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
            except PerdureError as error:
                _fail(shell, error)

        return run

    return wrap


def _fail(shell: Shell, error: PerdureError) -> NoReturn:
    if shell.as_json:
        emit({"ok": False, "error": {"code": error.code, "message": str(error), "detail": error.detail}})
    else:
        shell.err.print(f"perdure: {error}", style="red", markup=False)
    sys.exit(error.exit_code)


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


def moment(text: str | None, *, now: datetime | None = None) -> datetime | None:
    """An instant from what a person types: `30m`, `12h`, `7d`, `4w` ago, or a date, or an ISO time (local)."""
    if text is None:
        return None
    match = _AGE.match(text)
    if match:
        return (now or datetime.now(UTC)) - timedelta(**{_AGES[match[2]]: int(match[1])})
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{text!r} is no time: write 30m, 12h, 7d, 4w, 2026-05-01 or 2026-05-01T14:00") from None
    return at.astimezone(UTC)


def ago(at: datetime | None, now: datetime) -> str:
    """How long ago, as short as a badge."""
    if at is None:
        return "?"
    seconds = max(0, int((now - at).total_seconds()))
    for size, unit in ((86400 * 365, "y"), (86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit} ago"
    return "0m ago"


def size(n_bytes: int) -> str:
    """Bytes for people: 1.4 MB."""
    value = float(n_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def day(at: datetime | None) -> str:
    """A date and time for people, in their own zone."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M") if at else "no date"


def plural(n: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def confirmed(shell: Shell, question: str, *, yes: bool) -> bool:
    """Whether to go on. Without a terminal to ask on, --yes must have been given."""
    if yes:
        return True
    if shell.as_json or not sys.stdin.isatty():
        raise UsageError("this deletes: add --yes to do it without being asked, or --dry-run to see what it would do")
    return click.confirm(question, default=False, err=True)
