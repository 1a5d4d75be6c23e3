"""The command `telegram`: the agent of this home in chats of Telegram."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import Any

import click

from perdure.delivery.telegram import BotApi
from perdure.delivery.webhook import read_secret
from perdure.errors import DeliveryFault, TokenRefused
from perdure.home import Home
from perdure.surfaces.cli.common import Shell, command, format_count
from perdure.surfaces.telegram.bot import TelegramBot, check_settings
from perdure.surfaces.telegram.inbox import Inbox


@command(
    "telegram",
    epilog="""\
  perdure telegram --check     ask Telegram who the bot is; show who wrote to it
  perdure telegram             in this terminal, until Ctrl-C""",
)
@click.option("--check", is_flag=True, help="Ask for the name of the bot, show what is kept, and end.")
def telegram_command(shell: Shell, check: bool) -> None:
    """Let the people of `telegram.users` talk with the agent of this home in Telegram. Each chat is a session with the
    tools, the floor and the recall that it has elsewhere. `perdure serve` does the same if config.toml names a bot.
    docs/telegram.md describes it.
    """
    with shell.open_home(create=True) as home:
        check_settings(home.config.telegram)
        if check:
            _print_state(shell, home)
            return
        stop_event = threading.Event()
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signal_number, lambda *_: stop_event.set())
        lock = threading.Lock()

        def open_clone() -> Home:
            with lock:
                return home.clone_for_thread()

        bot = TelegramBot(home.path, home.config, open_clone)
        _run_until_stopped(shell, bot, stop_event, home)


def _run_until_stopped(shell: Shell, bot: TelegramBot, stop_event: threading.Event, home: Home) -> None:
    """Poll in a thread, so that a signal ends it at once: a poll waits for most of a minute."""
    fault: list[BaseException] = []

    def run() -> None:
        try:
            bot.run(stop_event, on_ready=lambda name: _greet(shell, name, home))
        except BaseException as error:  # noqa: BLE001 - it is raised where the command waits
            fault.append(error)
            stop_event.set()

    thread = threading.Thread(target=run, name="telegram-poll", daemon=True)
    thread.start()
    while not stop_event.wait(0.5):
        pass
    bot.close()
    thread.join(timeout=1)
    if fault:
        raise fault[0]


def _greet(shell: Shell, name: str, home: Home) -> None:
    n_users = len(home.config.telegram.users)
    who = format_count(n_users, "person") if n_users != 1 else "1 person"
    shell.err.print(f"@{name} answers {who.replace('persons', 'people')}; Ctrl-C ends it", markup=False)
    if not n_users:
        shell.note("`telegram.users` is empty: write to the bot, then `perdure telegram --check` shows your number.")


def _print_state(shell: Shell, home: Home) -> None:
    """Print the bot, the chats, and the numbers of strangers."""
    settings, inbox = home.config.telegram, Inbox(home.path)
    name, problem = "", ""
    try:
        api = BotApi(read_secret(settings.token_env, "telegram.token_env"), url=settings.url)
        name = str(api.call("getMe", {}).get("username") or "")
    except DeliveryFault as error:
        if error.status in (401, 404):
            raise TokenRefused(error.detail) from error
        problem = error.detail
    state: dict[str, Any] = {
        "bot": name,
        "problem": problem,
        "users": list(settings.users),
        "groups": list(settings.groups),
        "chats": {chat: kept.session for chat, kept in inbox.state.chats.items()},
        "waiting": len(inbox.list_items()),
        "ignored": inbox.state.n_ignored,
        "strangers": dict(inbox.state.strangers),
    }
    if shell.as_json:
        shell.print_json(state)
        return
    shell.out.print(f"@{name}" if name else f"Telegram does not answer: {problem}", markup=False)
    shell.out.print(f"allowed: {', '.join(settings.users) or 'nobody'}", markup=False)
    for chat, session in state["chats"].items():
        with contextlib.suppress(ValueError):
            shell.out.print(f"chat {chat}: session {session or '(a new one begins)'}", markup=False)
    if state["waiting"]:
        shell.out.print(f"{format_count(state['waiting'], 'message')} waiting for an answer")
    for user, n_messages in state["strangers"].items():
        shell.out.print(f"not allowed: {user} ({format_count(n_messages, 'message')})", markup=False)
