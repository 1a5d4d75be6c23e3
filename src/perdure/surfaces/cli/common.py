"""The parts that all commands share: the home, output for people and programs, errors and exit statuses."""

from __future__ import annotations

import functools
import json
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from perdure.environ import find_home_path
from perdure.errors import ClientOnly, PerdureError, SystemFault, ThinHome, UsageError
from perdure.lazy_module import is_left_out
from perdure.surfaces.units import (
    format_count,
    format_size,
    format_time,
    format_time_and_age,
    parse_future_moment,
    parse_moment,
)
from perdure.text import format_age

if TYPE_CHECKING:  # costs 0.1 s; commands that the resident home answers do not need it
    from rich.console import Console

    from perdure.capture.policy import CaptureRules
    from perdure.home import Home
    from perdure.remote_home import RemoteHome
    from perdure.types import Hit, MemoryHit

__all__ = [
    "ROLE_STYLES",
    "Actions",
    "Shell",
    "agent_option",
    "command",
    "confirm",
    "emit",
    "format_age",
    "format_count",
    "format_scores",
    "format_size",
    "format_time",
    "format_time_and_age",
    "parse_future_moment",
    "parse_moment",
    "read_text",
    "show_progress",
]  # fmt: skip

ROLE_STYLES = {"user": "bold green", "assistant": "bold blue", "tool": "magenta", "system": "dim"}

Actions = Sequence[tuple[str, str]]  # (command, reason)


class Shell:
    """One call of the command line: which home it uses, and how it prints."""

    def __init__(self, home: str | None, *, as_json: bool) -> None:
        self.home = home
        self.as_json = as_json

    @functools.cached_property
    def out(self) -> Console:
        """The console for data, on stdout."""
        return _make_console(stderr=False)

    @functools.cached_property
    def err(self) -> Console:
        """The console for messages to the person, on stderr."""
        return _make_console(stderr=True)

    def load_thin_rules(self) -> CaptureRules | None:
        """Load the rules of a thin machine, which keeps nothing itself and asks a remote home; None if the home is
        local.
        """
        from perdure.capture import policy

        home = find_home_path(self.home)
        rules = policy.load_rules(home)
        return rules if rules.remote.url else None

    def load_capture_rules(self, *, create: bool = False) -> CaptureRules:
        """Load the rules by which this machine captures, for a home here or elsewhere; `create` makes the one here."""
        if (rules := self.load_thin_rules()) is not None:
            return rules
        with self.open_home(create=create) as home:
            return home.captures.rules()

    def open_home(
        self, *, create: bool = False, read_only: bool = False, user: str | None = None, agent: str = ""
    ) -> Home:
        """Open the home of this call, as its own user and agent unless they are named; warn once if its outbox does not
        drain.
        """
        from perdure.home import open_home

        home = open_home(self.home, user=user, create=create, read_only=read_only, agent=agent)
        if home.writable and (warning := home.captures.outbox_warning()):
            self.note(f"{warning}. Run `perdure doctor`.")
        if home.config.archive.store and (status := home.upkeep.store_status()) and status.warning:
            self.note(status.warning)
        return home

    @contextmanager
    def use_home(self, *, create: bool = False, agent: str = "") -> Iterator[Home | RemoteHome]:
        """Open the home that answers this call: the local one, or the remote one on a thin machine.

        agent: whose floor and memories, of a local home. Raises ThinHome if one is named on a thin machine.
        """
        if (rules := self.load_thin_rules()) is None:
            with self.open_home(create=create, agent=agent) as home:
                yield home
            return
        if agent:
            raise ThinHome(rules.remote.url)
        from perdure.remote_home import open_remote_home

        with open_remote_home(rules) as remote_home:
            yield remote_home

    def begin_loading_model(self) -> None:
        """Begin to load the model that will embed a question, beside all that opening a home imports, if this home has
        vectors.
        """
        home = find_home_path(self.home)
        if not (home / "vectors").exists():
            return
        from perdure import config
        from perdure.models import local_embedders

        with suppress(PerdureError):  # whatever it is, opening the home says it
            local_embedders.begin_loading(config.load(home).models.embedder)

    def note(self, text: str) -> None:
        """Print a message that the person should read, on stderr: stdout carries data only. Silent with --json."""
        if not self.as_json:
            self.err.print(text, style="yellow", markup=False)

    def print_json(
        self, result: Mapping[str, Any], *, next_actions: Actions = (), links: Mapping[str, str] | None = None
    ) -> None:
        """Print the result of the command as JSON, for programs (with --json)."""
        envelope = {
            "ok": True,
            "command": click.get_current_context().command_path.partition(" ")[2],
            "result": result,
            "next_actions": [{"command": command, "why": why} for command, why in next_actions],
            "_links": dict(links or {}),
        }
        emit(envelope)

    def suggest(self, actions: Actions) -> None:
        """Print commands that the person can try next."""
        if actions and not self.as_json:
            width = max(len(command) for command, _ in actions)
            self.out.print()
            for command, why in actions:
                self.out.print(f"  {command:<{width}}  ", end="", style="bold", markup=False)
                self.out.print(why, style="dim", markup=False)


def _make_console(*, stderr: bool) -> Console:
    from rich.console import Console  # not installed on a machine that only captures; its commands do not need it

    return Console(stderr=stderr, highlight=False, soft_wrap=True, emoji=False)


agent_option = click.option(
    "--agent", metavar="NAME", default="", help="Whose floor and memories (default: `agent` of config.toml)."
)


def emit(value: Mapping[str, Any]) -> None:
    """Print one line of JSON on stdout; strings that are not valid Unicode are repaired."""
    try:
        import msgspec

        raw = msgspec.json.encode(_clean(value))
    except ModuleNotFoundError:  # a machine that only captures
        raw = json.dumps(_clean(value), ensure_ascii=False, default=_to_plain).encode()
    sys.stdout.buffer.write(raw + b"\n")
    sys.stdout.flush()


def _to_plain(value: Any) -> Any:
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
    """Make a click command with --home and --json that turns PerdureError into a message and an exit status."""

    def wrap(function: Callable[..., None]) -> click.Command:
        @click.command(name, epilog="\b\nExamples:\n" + epilog if epilog else None)
        @click.option("--home", metavar="DIR", help="The home to use (default: PERDURE_HOME, or ~/.perdure).")
        @click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
        @functools.wraps(function)
        def run(home: str | None, as_json: bool, **values: Any) -> None:
            shell = Shell(home, as_json=as_json)
            try:
                function(shell, **values)
            except ThinHome as error:
                _fail(shell, ThinHome(f"{error.detail} (there: `{_to_command_line(sys.argv[1:])}`)"))
            except PerdureError as error:
                _fail(shell, error)
            except ModuleNotFoundError as error:
                if not is_left_out(error):
                    raise
                _fail(shell, ClientOnly(f"{error.name} is not installed here"))
            except OSError as error:
                if error.filename is None:  # a closed pipe, or a fault of ours
                    raise
                _fail(shell, SystemFault(f"{error.filename}: {error.strerror}"))

        return run

    return wrap


def _to_command_line(arguments: Sequence[str]) -> str:
    """Format the command line as it must be typed at the home.

    >>> _to_command_line(["stats", "--home", "/here", "a b"])
    "perdure stats 'a b'"

    The option --home is left out: it names a folder of this machine.
    """
    remaining = [
        word
        for previous, word in zip(("", *arguments), arguments, strict=False)
        if "--home" not in (previous, word) and not word.startswith("--home=")
    ]
    return shlex.join(["perdure", *remaining])


def _fail(shell: Shell, error: PerdureError) -> NoReturn:
    if shell.as_json:
        emit({"ok": False, "error": {"code": error.code, "message": str(error), "detail": error.detail}})
    else:
        _print_error(shell, f"perdure: {error}")
    sys.exit(error.exit_code)


def _print_error(shell: Shell, text: str) -> None:
    try:
        shell.err.print(text, style="red", markup=False)
    except ModuleNotFoundError:  # a machine that only captures
        click.echo(text, err=True)


def format_scores(hit: Hit | MemoryHit) -> str:
    """Format the score of a hit and its parts."""
    keyword_part = "" if hit.keyword_score is None else f", words {hit.keyword_score:.3f}"
    vector_part = "" if hit.vector_score is None else f", meaning {hit.vector_score:.3f}"
    legs_score = getattr(hit, "legs_score", None)  # a memory's score is the sum of its legs
    legs_part = "" if legs_score is None else f", both {legs_score:.3f}"
    return f"score {hit.score:.3f}{keyword_part}{vector_part}{legs_part}"


@contextmanager
def show_progress(
    shell: Shell, label: str, total: int | None, *, in_bytes: bool = False
) -> Iterator[Callable[..., None]]:
    """Show a progress bar on stderr; show nothing if stderr is not a terminal or the output is JSON.

    Yields a function that takes the amount done and, if it is only known now, the total.
    """
    if shell.as_json or not shell.err.is_terminal:
        yield lambda *_: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn  # 20 ms

    amount_column = DownloadColumn() if in_bytes else TextColumn("{task.completed:,.0f}")
    columns = (TextColumn("{task.description}"), BarColumn(), amount_column, TimeRemainingColumn())
    with Progress(*columns, console=shell.err, transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda n_done, n_total=total: bar.update(task, completed=n_done, total=n_total)


def print_events_without_effect(shell: Shell, n_events: int) -> None:
    """Print how many events of machines and grants came from another home, if there are any."""
    if n_events:
        events = f"{format_count(n_events, 'event')} of machines and grants were copied and have no effect"
        shell.out.print(f"{events}: they count only in the home that made them.", markup=False)


def confirm(shell: Shell, question: str, *, yes: bool) -> bool:
    """Ask whether to go on; return True for yes. Raises UsageError without a terminal, unless --yes was given."""
    if yes:
        return True
    if shell.as_json or not sys.stdin.isatty():
        flags = {flag for parameter in click.get_current_context().command.params for flag in parameter.opts}
        hint = ", or --dry-run to see the effect first" if "--dry-run" in flags else ""
        raise UsageError(f"this command deletes data: add --yes to confirm{hint}")
    return click.confirm(question, default=False, err=True)


def read_text(secret_file: str | None, label: str) -> str:
    """Read a secret from a file or from standard input (-), or ask for it on the terminal. Raises UsageError."""
    if secret_file is None:
        if not sys.stdin.isatty():
            what = label[:1].lower() + label[1:]
            raise UsageError(
                f"no terminal to ask for the {what}: add --secret-file FILE, or --secret-file - to pipe it"
            )
        return str(click.prompt(label, hide_input=True, err=True))
    if secret_file == "-":
        return sys.stdin.read(10_000)
    try:
        return Path(secret_file).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{secret_file}: {error}") from error
