"""The command `proxy`, which gives memory to clients that take a base URL."""

from __future__ import annotations

import contextlib
import shlex
import signal
import threading
from pathlib import Path

import click

from perdure.config import find_home_path
from perdure.config import load as load_config
from perdure.errors import UsageError
from perdure.service import health, lock
from perdure.service.server import HomeServer
from perdure.surfaces.cli.common import Shell, command
from perdure.surfaces.proxy.listener import ProxyListener, read_base_url

_SIGNAL_CHECK_S = 0.5


@command(
    "proxy",
    epilog="""\
  perdure proxy                          in this terminal, until Ctrl-C
  perdure proxy --show                   print the base URLs, for a client's settings
  perdure proxy --listen 127.0.0.1:9000  at another address""",
)
@click.option("--show", is_flag=True, help="Print the base URLs and end.")
@click.option(
    "--listen", metavar="ADDRESS", default="", help="Host and port; default: `proxy.listen`, else 127.0.0.1:8788."
)
def proxy_command(shell: Shell, show: bool, listen: str) -> None:
    """Give memory to any client that takes a base URL of Anthropic's or OpenAI's API: recall stands beside each message
    of a person, and both sides are captured. Everything else passes unchanged. Your key goes on to its provider and is
    not stored. If no resident home runs, this process is one.
    """
    if shell.load_thin_rules() is not None:
        raise UsageError("this machine has no home of its own: run the proxy where its home is")
    home = find_home_path(shell.home)
    shell.open_home(create=True).close()  # raises if the home is unusable
    if show:
        _print_addresses(shell, read_base_url(home, load_config(home)))
        return
    if lock.find_resident(home) is not None:
        _serve_beside(shell, home, listen)
    else:
        _serve_home(shell, listen)


def _serve_beside(shell: Shell, home: Path, listen: str) -> None:
    """Serve the proxy alone: a resident home runs, and answers it."""
    health.raise_file_limit()
    stop_event = threading.Event()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, lambda *_: stop_event.set())
    with contextlib.closing(ProxyListener(home, load_config(home))) as listener:
        _print_addresses(shell, listener.start(listen=listen, is_wanted=True))
        while not stop_event.wait(_SIGNAL_CHECK_S):  # a signal that another thread got interrupts no endless wait
            pass


def _serve_home(shell: Shell, listen: str) -> None:
    """Serve the home and the proxy."""
    with shell.open_home(create=True) as home:
        serving = HomeServer(home)
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signal_number, lambda *_: serving.stop_event.set())
        with contextlib.closing(ProxyListener(home.path, home.config)) as listener:
            serving.run(on_ready=lambda: _print_addresses(shell, listener.start(listen=listen, is_wanted=True)))


def _print_addresses(shell: Shell, base_url: str) -> None:
    if shell.as_json:
        shell.print_json({"anthropic": base_url, "openai": f"{base_url}/v1"})
    else:
        shell.out.print(f"ANTHROPIC_BASE_URL={shlex.quote(base_url)}", markup=False, soft_wrap=True, highlight=False)
        shell.out.print(f"OPENAI_BASE_URL={shlex.quote(base_url)}/v1", markup=False, soft_wrap=True, highlight=False)
    shell.out.file.flush()  # who started this process with a pipe waits for it
