"""The command `mail`: the agent of this home answers mail."""

from __future__ import annotations

import signal
import threading
from typing import Any

import click

from perdure.config import MailConfig
from perdure.delivery.mail import open_server
from perdure.errors import ConfigFault, DeliveryFault, UsageError
from perdure.home import Home
from perdure.surfaces.cli.common import Shell, command, format_count
from perdure.surfaces.mail.imap import ImapFolder
from perdure.surfaces.mail.inbox import MailInbox
from perdure.surfaces.mail.reply import to_delivery_config
from perdure.surfaces.mail.responder import MailResponder, check_settings, open_source


@command(
    "mail",
    epilog="""\
  perdure mail --check         connect to both servers; show what waits, and who wrote
  perdure mail --once          answer what is there, and end: for cron
  perdure mail                 in this terminal, until Ctrl-C
  perdure mail --resend 3f2a   send an answer again that perhaps arrived""",
)
@click.option("--check", is_flag=True, help="Connect to the servers, show what is kept, and end.")
@click.option("--once", "is_once", is_flag=True, help="Answer what is there now, and end.")
@click.option("--resend", "resent_id", metavar="ID", default="", help="Send this answer again; --check lists the ids.")
def mail_command(shell: Shell, check: bool, is_once: bool, resent_id: str) -> None:
    """Let the people of `mail.senders` write to the agent of this home. Each thread of mails is a session with the
    floor and the recall that it has elsewhere. `perdure serve` does the same if config.toml names an address.
    docs/mail.md describes it.
    """
    if sum((check, is_once, bool(resent_id))) > 1:
        raise UsageError("give only one of --check, --once and --resend")
    with shell.open_home(create=True) as home:
        check_settings(home.config.mail)
        if check:
            _print_state(shell, home)
        elif resent_id:
            item = MailInbox(home.path).resend(resent_id)
            shell.note(f"the answer to {item.address} is sent at the next start of `perdure mail` or `perdure serve`")
        else:
            _answer(shell, home, is_once=is_once)


def _answer(shell: Shell, home: Home, *, is_once: bool) -> None:
    """Answer in a thread, so that a signal ends it at once."""
    stop_event, lock = threading.Event(), threading.Lock()
    is_stopped = threading.Event()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, lambda *_: stop_event.set())
    fault: list[BaseException] = []

    def open_clone() -> Home:
        with lock:
            return home.clone_for_thread()

    responder = MailResponder(home.path, home.config, open_clone)

    def greet() -> None:
        if not is_once:
            n_senders = len(home.config.mail.senders)
            who = "1 person" if n_senders == 1 else f"{n_senders} people"
            shell.err.print(f"{home.config.mail.address} answers {who}; Ctrl-C ends it", markup=False)

    def run() -> None:
        try:
            responder.run(stop_event, is_once=is_once, on_ready=greet)
        except BaseException as error:  # noqa: BLE001 - it is raised where the command waits
            fault.append(error)
        finally:
            is_stopped.set()

    thread = threading.Thread(target=run, name="perdure-mail", daemon=True)
    thread.start()
    while not is_stopped.wait(0.2) and not stop_event.is_set():
        pass
    responder.close()
    thread.join(timeout=10)
    if fault:
        raise fault[0]
    if is_once:
        _print_state(shell, home, servers={})


def _check_servers(config: MailConfig, inbox: MailInbox) -> dict[str, str]:
    """Connect to both servers, and return what they say or what is wrong."""
    states: dict[str, str] = {}
    source = open_source(config, inbox)
    try:
        states["incoming"] = source.check() if isinstance(source, ImapFolder) else f"the folder {config.incoming}"
    except DeliveryFault as error:
        states["incoming"] = f"problem: {error.detail}"
    finally:
        source.close()
    try:
        with open_server(to_delivery_config(config), "mail") as server:
            code, _ = server.noop()
            states["answers"] = f"{config.smtp_host} answers {code}"
    except ConfigFault:
        raise
    except (DeliveryFault, OSError) as error:  # the errors of smtplib are OSErrors
        states["answers"] = f"problem: {config.smtp_host}: {type(error).__name__}"
    return states


def _print_state(shell: Shell, home: Home, servers: dict[str, str] | None = None) -> None:
    """Print what the servers say, what waits and what failed, and who wrote without being allowed to."""
    settings, inbox = home.config.mail, MailInbox(home.path)
    items = inbox.list_items()
    failed = [item for item in items if item.state in ("unsure", "refused")]
    state: dict[str, Any] = {
        "address": settings.address,
        "senders": list(settings.senders),
        "servers": _check_servers(settings, inbox) if servers is None else servers,
        "waiting": sum(item.state in ("new", "asked", "answered", "sending") for item in items),
        "answered": sum(item.state == "sent" for item in items),
        "failed": [{"id": item.id, "to": item.address, "state": item.state, "error": item.error} for item in failed],
        "unread": [
            {"place": place, "tries": mail.n_tries, "is_given_up": mail.is_given_up, "error": mail.error}
            for place, mail in inbox.state.unread.items()
        ],
        "ignored": dict(inbox.state.ignored),
        "strangers": dict(inbox.state.strangers),
    }
    if shell.as_json:
        shell.print_json(state)
        return
    shell.out.print(f"{settings.address} answers: {', '.join(settings.senders) or 'nobody'}", markup=False)
    for name, words in state["servers"].items():
        shell.out.print(f"{name}: {words}", markup=False)
    shell.out.print(f"{format_count(state['answered'], 'mail')} answered in the last month, {state['waiting']} waiting")
    for item in failed:
        shell.out.print(f"{item.id}: the answer to {item.address} is {item.state}: {item.error}", markup=False)
    for mail in state["unread"]:
        later = "it is not tried again" if mail["is_given_up"] else "it is tried again"
        shell.out.print(f"mail {mail['place']} could not be read, and {later}: {mail['error']}", markup=False)
    for reason, n_mails in state["ignored"].items():
        shell.out.print(f"no answer, {reason}: {format_count(n_mails, 'mail')}", markup=False)
    for address, n_mails in state["strangers"].items():
        shell.out.print(f"not on the list: {address} ({format_count(n_mails, 'mail')})", markup=False)
