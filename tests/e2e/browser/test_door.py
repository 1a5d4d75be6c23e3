"""Who is let in, how, and that nobody is twice by the same link."""

from __future__ import annotations

import re

import pytest

STATUS = re.compile(r"status of 40[13]")  # what Chromium says of an answer that a test asked for


def refused(page) -> None:
    """The console may say that an answer was a refusal, for it was meant to be one."""
    page.noted.errors[:] = [said for said in page.noted.errors if not STATUS.search(said)]


def test_a_link_lets_one_visitor_in_once(visit, site) -> None:
    link = site.link("/search?q=sqlite")
    first, second = visit(is_known=False), visit(is_known=False)
    first.goto(link)
    assert first.url == f"{site.origin}/search?q=sqlite"
    second.goto(link)
    assert second.get_by_label("Secret of a machine").is_visible()
    assert "already used" in second.locator("main").inner_text()
    assert second.goto("/").url == f"{site.origin}/enter?to=%2F"
    refused(second)


def test_credential_signs_in_until_its_machine_is_revoked(visit, site) -> None:
    secret = site.perdure("machine", "register", "--name", "tablet", "--no-write-auth")["secret"]
    page = visit("/memories?q=port", is_known=False)
    page.get_by_label("Secret of a machine").fill("pdr-wrong")
    page.get_by_role("button", name="Sign in").click()
    assert "not the secret of a registered machine" in page.get_by_role("alert").inner_text()
    refused(page)
    page.get_by_label("Secret of a machine").fill(secret)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/memories?q=port")
    site.perdure("machine", "revoke", "tablet")
    page.reload()
    assert page.get_by_label("Secret of a machine").is_visible()


def test_visitor_who_left_is_signed_out(visit, site) -> None:
    page = visit(is_known=False)
    page.goto(site.link())
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/enter")
    page.goto("/memories")
    assert "/enter" in page.url
    assert page.context.cookies() == []


def test_cookie_is_unreadable_for_scripts(visit, site) -> None:
    page = visit("/")
    assert page.evaluate("document.cookie") == ""
    (cookie,) = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")


@pytest.mark.parametrize("path", ["/", "/search", "/memories", "/machines", "/recall"])
def test_stranger_is_shown_the_sign_in_page_and_redirected(visit, site, path) -> None:
    page = visit(path, is_known=False)
    assert page.url.startswith(f"{site.origin}/enter?to=")
    assert page.get_by_role("heading", level=1).inner_text() == "Perdure"
