"""The chat of the page in a real browser, over the scripted model: what a person sees, presses and gets."""

from __future__ import annotations

import base64
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from rig.model_server import Answer, ModelServer

from .conftest import PIXEL, Site

AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
RULES = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}}
HARM = "<script>alert('script')</script><img src=x onerror=\"alert('onerror')\"> [click](javascript:alert('link'))"
SAY, MESSAGE, AGENT = "#say button.primary", "#field-text", ".turn.assistant"
WORDS = f"{AGENT} .prose, {AGENT} .alert"


@pytest.fixture(scope="module")
def model() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, model: ModelServer) -> Iterator[Site]:
    """A served home whose model is the scripted one, with a project in which the agent may work."""
    place = tmp_path_factory.mktemp("chat")
    (place / "shop").mkdir()
    (place / "shop" / "cart.py").write_text("def total(prices):\n    return sum(prices) + 1\n")
    home = place / "home"
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(
        'machine = "laptop"\nuser = "mira"\n[server]\nhttp = "127.0.0.1:0"\nrequests_per_minute = 100000\n'
        f'[models.roles.resident]\nprovider = "openai"\nmodel = "scripted"\nurl = "{model.url}/v1"\n'
        'window_tokens = 32000\n[models.embedder]\nkind = "off"\n'
    )
    served = Site(home)
    with served.open() as opened:
        line = b'{"role": "user", "content": "Hello shop.", "timestamp": "2026-01-15T09:00Z"}\n'
        opened.capture(line, runtime="messages", session="shop", cwd=str(place / "shop"))
        opened.remember("The staging server of tidepool listens on port 9417.", path="tidepool/port")
        opened.upkeep.catch_up()
    served.begin()
    yield served
    served.perdure("serve", "--stop")


def begin(page: Any, text: str, *, folder: str = "") -> None:
    """Begin a conversation."""
    page.goto("/chat")
    if folder:
        page.select_option("#field-folder", folder)
    page.fill(MESSAGE, text)
    page.press(MESSAGE, "Enter")
    page.wait_for_url(re.compile("/chat/s"))


def say(page: Any, text: str) -> None:
    page.fill(MESSAGE, text)
    page.press(MESSAGE, "Enter")


def see(page: Any, words: str, css: str = WORDS) -> None:
    """Wait until the agent has said some words, or they stand elsewhere."""
    page.locator(css).filter(has_text=words).last.wait_for()


def piece(text: str) -> bytes:
    return b'data: {"choices": [{"index": 0, "delta": {"content": "%s"}}]}\n\n' % text.encode()


def list_violations(page: Any) -> list[str]:
    page.add_script_tag(content=AXE)
    violations = page.evaluate("rules => axe.run(document, rules)", RULES)["violations"]
    return [f"{one['id']}: {node['target']}" for one in violations for node in one["nodes"][:3]]


def test_an_answer_streams_into_the_page(visit: Any, model: ModelServer) -> None:
    page = visit()
    events = [piece("It listens "), piece("on **8443**"), piece(", behind nginx.")]
    model.answers.append(Answer(events=events, pause_s=0.7))
    begin(page, "Where?")
    see(page, "It listens", "#partial")
    address = page.url
    say(page, "@say Since March.")  # too early: the words stay, and it says why
    page.wait_for_selector("#say .alert.bad")
    assert page.input_value(MESSAGE) == "@say Since March."
    see(page, "8443", f"{AGENT} .prose strong")
    assert page.locator("#partial").count() == 0
    page.press(MESSAGE, "Enter")
    see(page, "Since March.")
    assert (page.url, page.input_value(MESSAGE)) == (address, "")
    assert page.locator("#say .alert").count() == 0
    assert page.noted.errors.pop() == "Failed to load resource: the server responded with a status of 400 (Bad Request)"


def test_the_keyboard_is_enough(visit: Any) -> None:
    page = visit("/")
    page.keyboard.press("g")
    page.keyboard.press("c")
    page.wait_for_url("**/chat")
    page.focus(MESSAGE)
    page.keyboard.type("@say One.")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("second row")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/chat/s"))
    see(page, "One.")
    assert "second row" in page.locator(".turn.person .typed").text_content().strip()


def test_a_permission_is_answered_with_the_keyboard(visit: Any, site: Site) -> None:
    shop = site.home.parent / "shop"
    page = visit(bypass_csp=True)
    change = '{"path": "cart.py", "old": "sum(prices) + 1", "new": "sum(prices)"}'
    begin(page, f"@call edit_file {change}\n@say Mended.", folder=str(shop))
    page.wait_for_selector(".question")
    assert page.locator(".question .del").all_text_contents() == ["-    return sum(prices) + 1"]
    assert page.locator(".question .add").all_text_contents() == ["+    return sum(prices)"]
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert list_violations(page) == []
    page.focus("#words")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Allow once"
    page.keyboard.press("Enter")
    see(page, "Mended.")
    assert "+ 1" not in (shop / "cart.py").read_text()
    page.click(f"{AGENT} .call summary")
    assert page.locator(f"{AGENT} .call .add").all_text_contents() == ["+sum(prices)"]


def test_a_denial_with_words_and_a_question_of_the_model(visit: Any, model: ModelServer) -> None:
    page = visit()
    begin(page, '@call shell {"command": "rm -rf build"}\n@call ask_user {"question": "What then?"}\n@say Well.')
    page.wait_for_selector(".question")
    page.fill("#words", "move it to /tmp")
    page.click("text=Do not allow")
    page.wait_for_selector(".question >> text=What then?")
    assert "says: move it to /tmp" in str(model.requests[-1].body)
    page.fill("#words", "nothing")
    page.press("#words", "Enter")
    see(page, "Well.")
    assert "nothing" in str(model.requests[-1].body)


def test_stop_keeps_what_came(visit: Any, model: ModelServer) -> None:
    page = visit()
    model.answers.append(Answer(events=[piece("It lis")], hangs=True))
    begin(page, "Where?")
    see(page, "It lis", "#partial")
    page.click("[data-stop]")
    see(page, "Stopped here.")
    assert page.locator(f"{AGENT} .prose").last.text_content().strip() == "It lis"
    say(page, "@say On 8443.")
    see(page, "On 8443.")


def test_a_reload_finds_the_answer_where_it_is(visit: Any, model: ModelServer) -> None:
    page = visit()
    model.answers.append(Answer(events=[piece(f"word{n} ") for n in range(8)], pause_s=0.5))
    begin(page, "Count.")
    see(page, "word1", "#partial")
    page.reload()
    see(page, "word0 word1", "#partial")
    see(page, "word6 word7", f"{AGENT} .prose:not(.partial)")
    assert page.locator(f"{AGENT} .prose").last.text_content().strip() == " ".join(f"word{n}" for n in range(8))


def test_two_tabs_see_one_session(visit: Any) -> None:
    one = visit()
    begin(one, '@call write_file {"path": "x.txt", "text": "x"}\n@say Written.')
    one.wait_for_selector(".question")
    two = visit(one.url)
    two.wait_for_selector(".question")
    two.click("text=Allow once")
    see(two, "Written.")
    see(one, "Written.")
    assert one.locator(".question").count() == 0
    say(one, "@say From the first.")
    see(two, "From the first.")


def test_another_way_and_back(visit: Any) -> None:
    page = visit()
    begin(page, "@say One.")
    see(page, "One.")
    page.click("text=Say it otherwise")
    page.wait_for_url(re.compile("edit="))
    assert page.input_value(MESSAGE) == "@say One."
    page.fill(MESSAGE, "@say Two.")
    page.click(SAY)
    see(page, "Two.")
    page.click("a[rel=prev]")
    see(page, "One.")
    page.click("a[rel=next]")
    see(page, "Two.")


def test_files_and_an_image_go_along(visit: Any, model: ModelServer, tmp_path: Path) -> None:
    page = visit()
    page.goto("/chat")
    image, harm = tmp_path / "look.png", tmp_path / "<img src=x onerror=alert(1)>.txt"
    image.write_bytes(base64.b64decode(PIXEL))
    harm.write_text(HARM)
    page.set_input_files("#field-files", [image, harm])
    page.fill(MESSAGE, "@say Seen.")
    page.press(MESSAGE, "Enter")
    see(page, "Seen.")
    page.wait_for_selector("[data-stop]", state="detached")
    page.wait_for_timeout(1000)  # the page is asked for once more at the end
    page.locator(".shot img").scroll_into_view_if_needed()
    page.wait_for_timeout(500)
    assert page.locator(".shot img").evaluate("one => one.naturalWidth") == 10
    page.click(".pasted summary")
    assert HARM in page.locator(".pasted .inside").text_content().strip()


def test_hostile_words_stay_words(visit: Any, model: ModelServer, site: Site) -> None:
    """In an answer as it comes and as it stands, in the output of a tool, in the name of a file, in a question."""
    page = visit()
    (site.home.parent / "shop" / "harm.txt").write_text(HARM)
    model.answers += [
        Answer("", [("read_file", {"path": "harm.txt"})]),
        Answer("", [("write_file", {"path": "<img src=x onerror=alert(1)>.txt", "text": HARM})]),
        Answer(events=[piece(HARM.replace('"', '\\"')), piece(" The end.")], pause_s=0.6),
    ]
    begin(page, HARM, folder=str(site.home.parent / "shop"))
    page.wait_for_selector(".question")
    assert HARM in page.locator(".question").text_content().strip()
    page.click("text=Allow once")
    see(page, "onerror", "#partial")
    see(page, "The end.", f"{AGENT} .prose:not(.partial)")
    for summary in page.locator(f"{AGENT} .call summary").all():
        summary.click()
    assert "<script>" in page.locator(f"{AGENT} .call").first.text_content().strip()
    assert page.locator("main script, main [onerror], main a[href^=javascript]").count() == 0


def test_what_was_remembered_leads_to_its_source(visit: Any) -> None:
    page = visit()
    begin(page, "Which port does the staging server of tidepool listen on?")
    page.locator(".recalled summary").wait_for(timeout=20_000)
    page.click(".recalled summary")
    assert "9417" in page.locator(".recalled").text_content().strip()
    page.click(".recalled li a")
    page.wait_for_url(re.compile("/memories/"))
    assert "9417" in page.locator("main").text_content().strip()


def test_a_kill_in_the_middle_of_an_answer(visit: Any, model: ModelServer, site: Site) -> None:
    """The session resumes; the message stands there, and the answer that was lost is shown as such."""
    page = visit()
    model.answers.append(Answer(events=[piece("It lis")], hangs=True))
    begin(page, "Where?")
    see(page, "It lis", "#partial")
    address = page.url.removeprefix(site.origin)
    page.goto("about:blank")
    for process_id in find_servers(site):
        os.kill(process_id, signal.SIGKILL)
    site.begin()
    page = visit(address)
    see(page, "it was interrupted")
    assert page.locator(".turn.person .typed").text_content() == "Where?"
    say(page, "@say On 8443.")
    see(page, "On 8443.")


def find_servers(site: Site) -> list[int]:
    """The processes that serve this home."""
    listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    lines = [line.split(maxsplit=1) for line in listed.splitlines()]
    served = [int(number) for number, words in lines[1:] if "serve" in words and Path(sys.executable).name in words]
    found = []
    for number in served:
        environment = Path(f"/proc/{number}/environ").read_bytes().split(b"\0")
        if f"PERDURE_HOME={site.home}".encode() in environment:
            found.append(number)
    return found


def test_it_can_be_read_without_scripts(visit: Any) -> None:
    page = visit()
    begin(page, "@say One.")
    see(page, "One.")
    plain = visit(page.url, java_script_enabled=False)
    assert "One." in plain.locator(AGENT).text_content().strip()
    plain.fill(MESSAGE, "@say Two.")
    plain.click(SAY)
    plain.wait_for_timeout(500)
    plain.reload()
    assert "Two." in plain.locator(".turns").text_content().strip()
