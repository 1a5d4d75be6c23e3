"""The group of commands about deliveries: what waits, what failed for good, and sending by hand."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from perdure.delivery.message import Delivery
from perdure.delivery.queue import DeliveryQueue
from perdure.delivery.targets import check_target
from perdure.errors import ConfigFault, UsageError
from perdure.home import Home
from perdure.surfaces.cli.common import Shell, command, confirm, format_count, format_size, format_time
from perdure.surfaces.cli.lazy import LazyGroup
from perdure.text import one_line, printable

_DELIVERY_COMMANDS: dict[str, tuple[str, str]] = {
    "list": ("deliveries", "List what waits and what could not be delivered; with --all, also what was sent."),
    "show": ("deliveries", "Show one delivery with its text."),
    "send": ("deliveries", "Send a message to a target; it is kept and tried again until the target takes it."),
    "test": ("deliveries", "Send a short message to a target once, and say what came of it."),
    "targets": ("deliveries", "List the targets, and whether their settings make sense."),
    "retry": ("deliveries", "Try now, and as often as for a new message."),
    "drop": ("deliveries", "Delete a delivery without sending it."),
}
_SHOWN_ID_CHARS = 8


@click.group(
    "deliveries",
    cls=LazyGroup,
    table=_DELIVERY_COMMANDS,
    default_command="list",
    epilog="""\b
Examples:
  perdure deliveries
  perdure deliveries targets
  perdure deliveries test phone
  perdure deliveries send notes "The build is green." --title Build
  perdure deliveries retry --all""",
)
def deliveries_command() -> None:
    """Deliver results to the targets of config.toml ([delivery.NAME]): a file, a webhook, mail, a chat of Telegram.
    docs/delivery.md describes them.
    """


@command("list", epilog="  perdure deliveries list\n  perdure deliveries list --all --json")
@click.option("--all", "shows_all", is_flag=True, help="Also what was sent in the last month.")
@click.option("--target", metavar="NAME", default="", help="Only those to this target.")
def list_command(shell: Shell, shows_all: bool, target: str) -> None:
    """List what waits and what could not be delivered; with --all, also what was sent."""
    with shell.open_home() as home:
        deliveries = [
            delivery
            for delivery in open_queue(home).list_deliveries()
            if (shows_all or delivery.state != "sent") and target in ("", delivery.target)
        ]
    if shell.as_json:
        shell.print_json({"deliveries": [to_json(delivery) for delivery in deliveries]})
        return
    for delivery in deliveries:
        shell.out.print(
            f"{delivery.id[:_SHOWN_ID_CHARS]}  {delivery.state:<7} {delivery.target}  {_describe(delivery)}",
            markup=False,
        )
    if not deliveries:
        shell.out.print("Nothing waits.", style="dim")
    dead = [delivery for delivery in deliveries if delivery.state == "dead"]
    if dead:
        shell.suggest([(f"perdure deliveries retry {dead[0].id[:_SHOWN_ID_CHARS]}", "when the target is repaired")])


@command("show", epilog="  perdure deliveries show e518")
@click.argument("identifier", metavar="ID")
def show_command(shell: Shell, identifier: str) -> None:
    """Show one delivery with its text. An ID is the beginning of an id."""
    with shell.open_home() as home:
        delivery = open_queue(home).find(identifier)
    if shell.as_json:
        shell.print_json(to_json(delivery) | {"text": delivery.text})
        return
    shell.out.print(f"{delivery.id}  {delivery.state}  {delivery.target}", markup=False)
    shell.out.print(f"since {format_time(delivery.created_at)}, {_describe(delivery)}", style="dim", markup=False)
    for attachment in delivery.attachments:
        shell.out.print(f"{attachment.name} ({format_size(attachment.n_bytes)})", style="dim", markup=False)
    if delivery.text:
        shell.out.print()
        shell.out.print(printable(delivery.text), markup=False)


@command(
    "send",
    epilog="""\
  perdure deliveries send notes "The build is green." --title Build
  perdure deliveries send phone - < report.md
  perdure deliveries send mail "The list is attached." --attach list.csv
  perdure deliveries send notes "Done." --key build/417     once, however often it is said""",
)
@click.argument("target")
@click.argument("words", metavar="TEXT", nargs=-1)
@click.option("--title", default="", help="Above the text; of a mail, its subject.")
@click.option("--attach", "files", multiple=True, type=click.Path(path_type=Path), help="A file that goes with it.")
@click.option("--file", "file", metavar="NAME", default="", help="Of a target of kind file: append to this file.")
@click.option("--key", default="", help="Do nothing if a message with this key was sent in the last month.")
@click.option("--later", is_flag=True, help="Only store it: the resident home sends it within a minute.")
def send_command(
    shell: Shell, target: str, words: tuple[str, ...], title: str, files: tuple[Path, ...], file: str, key: str,
    later: bool,
) -> None:  # fmt: skip
    """Send a message to a target. It is on disk before the first try, and tried again until the target takes it: by the
    resident home, or by `perdure deliveries retry`. TEXT is Markdown; `-` reads it from standard input.
    """
    text = _read_text(words)
    with shell.open_home(create=True) as home:
        queue = open_queue(home)
        delivery = queue.submit(target, text, title=title, files=files, file=file, key=key)
        if not later and delivery.state == "waiting" and not delivery.n_tries:
            delivery = queue.send(delivery.id)
    _print_outcome(shell, delivery)


def _read_text(words: Sequence[str]) -> str:
    if "-" in words:
        return sys.stdin.buffer.read().decode("utf-8", "replace")
    return " ".join(words)


@command("test", epilog="  perdure deliveries test phone")
@click.argument("target")
def test_command(shell: Shell, target: str) -> None:
    """Send a short message to a target once, and say what came of it. A test that fails is not tried again."""
    with shell.open_home(create=True) as home:
        queue = open_queue(home)
        text = f"This is a test from {home.config.machine}, {format_time(datetime.now(UTC))}."
        delivery = queue.send(queue.submit(target, text, title="Test of Perdure").id)
        if delivery.state != "sent":
            queue.drop(delivery.id)
            delivery = msgspec.structs.replace(delivery, state="dead")
    _print_outcome(shell, delivery)


@command("targets", epilog="  perdure deliveries targets")
def targets_command(shell: Shell) -> None:
    """List the targets of config.toml, and whether their settings make sense. Nothing is contacted."""
    with shell.open_home() as home:
        rows = [_check_target(home, name) for name in sorted(home.config.delivery)]
    if shell.as_json:
        shell.print_json({"targets": rows})
    else:
        for row in rows:
            shell.out.print(f"{row['name']:<12} {row['kind']:<9} {row['problem'] or 'ok'}", markup=False)
        if not rows:
            shell.out.print("There are no targets. docs/delivery.md says how to name one in config.toml.")
    if any(row["problem"] for row in rows):
        sys.exit(1)


def _check_target(home: Home, name: str) -> dict[str, str]:
    config = home.config.delivery[name]
    try:
        check_target(home.path, name, config)
    except ConfigFault as error:
        return {"name": name, "kind": config.kind, "problem": error.detail}
    return {"name": name, "kind": config.kind, "problem": ""}


@command("retry", epilog="  perdure deliveries retry e518\n  perdure deliveries retry --all")
@click.argument("identifiers", metavar="ID", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="All that wait or could not be delivered.")
def retry_command(shell: Shell, identifiers: tuple[str, ...], is_all: bool) -> None:
    """Try now, in this process, and then as often as for a new message. Parts that arrived are not sent again."""
    if bool(identifiers) == is_all:
        raise UsageError("give the ids of deliveries, or --all")
    with shell.open_home() as home:
        queue = open_queue(home)
        deliveries = (
            [delivery for delivery in queue.list_deliveries() if delivery.state != "sent"]
            if is_all
            else [queue.find(identifier) for identifier in identifiers]
        )
        for delivery in deliveries:
            queue.retry(delivery.id)
        results = [queue.send(delivery.id) for delivery in deliveries]
    if shell.as_json:
        shell.print_json({"deliveries": [to_json(delivery) for delivery in results]})
    else:
        for delivery in results:
            shell.out.print(f"{delivery.id[:_SHOWN_ID_CHARS]}  {_describe(delivery)}", markup=False)
        if not results:
            shell.out.print("Nothing waits.", style="dim")
    if any(delivery.state == "dead" for delivery in results):
        sys.exit(1)


@command("drop", epilog="  perdure deliveries drop e518 --yes")
@click.argument("identifiers", metavar="ID", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
def drop_command(shell: Shell, identifiers: tuple[str, ...], yes: bool) -> None:
    """Delete a delivery with its text and files. It is not sent any more."""
    with shell.open_home() as home:
        queue = open_queue(home)
        deliveries = [queue.find(identifier) for identifier in identifiers]
        if not confirm(shell, f"Delete {format_count(len(deliveries), 'delivery')}?", yes=yes):
            return
        for delivery in deliveries:
            queue.drop(delivery.id)
    if shell.as_json:
        shell.print_json({"dropped": [delivery.id for delivery in deliveries]})
    else:
        shell.out.print(f"Deleted {format_count(len(deliveries), 'delivery')}.")


def open_queue(home: Home) -> DeliveryQueue:
    """Return the deliveries of a home."""
    return DeliveryQueue(home.path, home.config.delivery)


def to_json(delivery: Delivery) -> dict[str, Any]:
    """Return a delivery without its text, as JSON values."""
    fields: dict[str, Any] = msgspec.to_builtins(delivery)
    del fields["text"]
    return fields | {"n_bytes": delivery.n_bytes}


def _describe(delivery: Delivery) -> str:
    """Say in words how far a delivery is."""
    name = f"“{printable(one_line(delivery.title or delivery.text, 60))}” " if delivery.title or delivery.text else ""
    if delivery.state == "sent" and delivery.ended_at:
        return f"sent {format_time(delivery.ended_at)}"
    tries = format_count(delivery.n_tries, "try")
    if delivery.state == "dead":
        return f"{name}not delivered after {tries}: {delivery.error}"
    if not delivery.n_tries:
        return f"{name}not tried yet"
    error = delivery.error or ("being tried" if delivery.is_trying else "")
    return f"{name}{tries}, next {format_time(delivery.next_at)}: {error}"


def _print_outcome(shell: Shell, delivery: Delivery) -> None:
    if shell.as_json:
        shell.print_json(to_json(delivery))
    elif delivery.state == "sent":
        shell.out.print(f"Sent to {delivery.target}.", markup=False)
    elif delivery.state == "dead":
        shell.out.print(f"Not delivered to {delivery.target}: {delivery.error}", markup=False)
    elif delivery.n_tries:
        shell.out.print(
            f"Kept as {delivery.id[:_SHOWN_ID_CHARS]}; {delivery.target} did not take it yet: {delivery.error}",
            markup=False,
        )
    else:
        shell.out.print(f"Kept as {delivery.id[:_SHOWN_ID_CHARS]}, for {delivery.target}.", markup=False)
    if delivery.state == "dead":
        sys.exit(1)
