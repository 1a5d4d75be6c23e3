"""Serve a home with all its surfaces, in this process, until it is told to end."""

from __future__ import annotations

import contextlib
import signal
from dataclasses import replace
from pathlib import Path

from perdure.home import Home
from perdure.service.server import HomeServer
from perdure.surfaces.cli.common import Shell
from perdure.surfaces.mail.listener import MailListener
from perdure.surfaces.proxy.listener import ProxyListener
from perdure.surfaces.telegram.listener import TelegramListener
from perdure.surfaces.web.listener import Listener


def serve_home(shell: Shell, home: Home, *, http: str = "") -> None:
    """Run the resident home and what it serves; return after SIGTERM, SIGINT or `perdure serve --stop`.

    http: where to answer over HTTP, instead of where the settings say.
    """
    if http:
        home.config = replace(home.config, server=replace(home.config.server, http=http))
    serving = HomeServer(home)
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, lambda *_: serving.stop_event.set())
    listener, proxy_listener = Listener(serving), ProxyListener(home.path, home.config)
    serving.page_link = listener.make_page_link
    telegram_listener = TelegramListener(home.path, home.config, serving.clone_home)
    mail_listener = MailListener(home.path, home.config, serving.clone_home)

    def print_ready() -> None:
        _print_address(shell, home.path, listener, proxy_listener)
        for line in filter(None, (telegram_listener.start(), mail_listener.start())):
            shell.err.print(line, markup=False, soft_wrap=True)

    with contextlib.ExitStack() as closing:
        for part in (listener, proxy_listener, telegram_listener, mail_listener):
            closing.callback(part.close)
        serving.run(on_ready=print_ready)


def _print_address(shell: Shell, home: Path, listener: Listener, proxy_listener: ProxyListener) -> None:
    """Print what is served and, on a terminal, where its page is or how to get one."""
    address = listener.start()
    shell.err.print(f"serving {home}" + (f" at {address}" if address else ""), markup=False)
    if base_url := proxy_listener.start():
        shell.err.print(f"its proxy: {base_url}", markup=False, soft_wrap=True)
    if shell.err.is_terminal:
        shell.err.print(
            f"its page: {listener.make_page_link() if address else '`perdure page`'}", markup=False, soft_wrap=True
        )
