"""Sign-in with a real OpenID provider in a real browser: cookies, redirects and the policy of the page."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page

import perdure
from perdure.service.server import HomeServer, Intervals
from perdure.surfaces.web.listener import Listener
from rig import oidc

pytestmark = pytest.mark.timeout(900)  # the provider may have to be installed first


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, oidc.RealProvider]]:
    """(the address of a home in which a person is linked, the provider). Both are sites of their own to a browser."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("THE_SECRET", oidc.CLIENT_SECRET)
    with oidc.start_real(f"http://127.0.0.1:{port}/enter/openid/back") as provider:
        folder = tmp_path / "home"
        folder.mkdir(mode=0o700)
        (folder / "config.toml").write_text(
            f'user = "mira"\n[server]\nhttp = "127.0.0.1:{port}"\n[models.embedder]\nkind = "off"\n[identity]\n'
            f'private = ["localhost"]\n[identity.openid]\nissuer = "{provider.issuer}"\nclient_id = "perdure"\n'
            'secret_env = "THE_SECRET"\n'
        )
        with perdure.open(folder) as home:
            home.sharing.persons.link("bob", provider.issuer, "248289761001")
            serving = HomeServer(home, intervals=Intervals(round_s=0.2, prove_s=5, tick_s=60))
            listener = Listener(serving)
            thread = threading.Thread(target=serving.run, daemon=True)
            thread.start()
            yield listener.start(), provider
            listener.close()
            serving.stop_event.set()
            thread.join(10)


@pytest.fixture
def page(browser: Any) -> Iterator[Page]:
    context = browser.new_context()
    opened = context.new_page()
    opened.set_default_timeout(60_000)
    yield opened
    context.close()


def sign_in(page: Page, subject: str) -> None:
    page.get_by_role("link", name="Sign in with localhost").click()
    page.locator("input[name=login]").fill(subject)
    page.locator("input[name=password]").fill("x")
    page.locator("button[type=submit]").click()
    page.get_by_role("button", name="Continue").click()


def test_a_person_signs_in_and_out(served: tuple[str, oidc.RealProvider], page: Page) -> None:
    address, _ = served
    page.goto(f"{address}/memories")
    sign_in(page, "248289761001")
    page.wait_for_url(f"{address}/memories")
    assert "bob · browser" in page.locator("header").inner_text()
    page.reload()
    assert urlsplit(page.url).path == "/memories"
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url(f"{address}/enter**")


def test_a_person_who_is_not_linked_reads_the_command(served: tuple[str, oidc.RealProvider], page: Page) -> None:
    address, _ = served
    page.goto(f"{address}/enter")
    sign_in(page, "eve")
    page.get_by_text("perdure user link USER --subject eve").wait_for()
    page.goto(f"{address}/memories")
    assert urlsplit(page.url).path == "/enter"
