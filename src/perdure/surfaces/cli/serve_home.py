"""Serve a home with all its surfaces, in this process, until it is told to end."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from functools import partial
from pathlib import Path

import click

from perdure.home import Home
from perdure.service.duties import hold_duty
from perdure.service.server import HomeServer
from perdure.surfaces.mail.listener import MailListener
from perdure.surfaces.proxy.listener import ProxyListener
from perdure.surfaces.telegram.listener import TelegramListener
from perdure.surfaces.web.listener import Listener


def serve_home(home: Home, *, http: str = "") -> None:
    """Run the resident home and what it serves; return after SIGTERM, SIGINT or `perdure serve --stop`.

    http: where to answer over HTTP, instead of where the settings say.
    """
    if http:
        home.config = home.config._replace(server=home.config.server._replace(http=http))
    serving = HomeServer(home)
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, lambda *_: serving.stop_event.set())
    listener = Listener(serving)
    serving.page_link = listener.make_page_link
    channels = _Channels(home, serving)

    def print_ready() -> None:
        _print_address(home.path, listener)
        if home.config.workers.enabled:  # a mail must be answered once, by whichever process
            hold = partial(hold_duty, home.path, "channels", channels.run, serving.stop_event)
            threading.Thread(target=hold, name="perdure-channels", daemon=True).start()
        else:
            channels.start()

    with contextlib.ExitStack() as closing:
        for part in (listener, channels):
            closing.callback(part.close)
        serving.run(on_ready=print_ready)


class _Channels:
    """What one process of a home answers besides its page: the proxy, Telegram, mail."""

    def __init__(self, home: Home, serving: HomeServer) -> None:
        self._proxy = ProxyListener(home.path, home.config)
        self._telegram = TelegramListener(home.path, home.config, serving.clone_home)
        self._mail = MailListener(home.path, home.config, serving.clone_home)

    def start(self) -> None:
        """Begin to answer where the settings say so."""
        if base_url := self._proxy.start():
            click.echo(f"its proxy: {base_url}", err=True)
        for line in filter(None, (self._telegram.start(), self._mail.start())):
            click.echo(line, err=True)

    def run(self, stop_event: threading.Event) -> None:
        """Answer until stopped."""
        self.start()
        stop_event.wait()

    def close(self) -> None:
        """Stop answering."""
        for part in (self._proxy, self._telegram, self._mail):
            part.close()


def _print_address(home: Path, listener: Listener) -> None:
    """Print what is served and, on a terminal, where its page is or how to get one.

    Without the library that draws tables: a resident home would keep its 7 MB for as long as it runs.
    """
    address = listener.start()
    click.echo(f"serving {home}" + (f" at {address}" if address else ""), err=True)
    if sys.stderr.isatty():
        click.echo(f"its page: {listener.make_page_link() if address else '`perdure page`'}", err=True)
