"""The chat of the page without scripts: forms that lead back, over the scripted model."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from perdure.formats.perdure import Boundary, Branch, Message
from perdure.session.catalog import list_sessions
from perdure.session.log import read_tree
from perdure.session.session import open_session
from perdure.surfaces import live_sessions
from perdure.testing import ScriptedChat
from rig.agent_project import PNG
from rig.model_server import Answer, ModelServer
from rig.served_agent import ServedAgent

from .conftest import Seen, Visitor

HARM = "<script>alert(1)</script><img src=x onerror=alert(1)> [click](javascript:alert(1))"


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def at(tmp_path: Path, model: ModelServer) -> Iterator[ServedAgent]:
    with ServedAgent(tmp_path / "home", model.url) as served:
        yield served


@pytest.fixture
def visitor(at: ServedAgent) -> Visitor:
    return let_in(at)


def let_in(at: ServedAgent) -> Visitor:
    link = urlsplit(at.listener.make_page_link())
    visitor = Visitor(f"http://{link.netloc}", at.place)
    assert visitor.get(link.path).status == 200
    return visitor


def wait_for(look: Callable[[], Seen], words: str, *, css: str = ".turn.assistant", limit_s: float = 15.0) -> Seen:
    """Return the page once the agent has said some words and its turn has ended, or the words stand elsewhere."""
    ends_s = time.monotonic() + limit_s
    while words not in " ".join((seen := look()).texts(css)) or (
        css == ".turn.assistant" and seen.tree.css("#partial")
    ):
        assert time.monotonic() < ends_s, seen.text()
        time.sleep(0.05)
    return seen


def begin(visitor: Visitor, text: str, **fields: str) -> str:
    """Begin a session; return its address."""
    seen = visitor.send("/chat", [("text", text), ("token", visitor.token()), *fields.items()])
    assert seen.status == 303, seen.text()
    return str(seen.headers["location"])


def list_messages(at: ServedAgent, address: str) -> list[tuple[str, str]]:
    path = read_tree(at.home, address.rpartition("/")[2]).find_path()
    return [(entry.role, entry.text) for entry in path if isinstance(entry, Message)]


def test_a_conversation_goes_on(at: ServedAgent, visitor: Visitor) -> None:
    address = begin(visitor, "@say It listens on **8443**.")
    seen = wait_for(lambda: visitor.get(address), "It listens on 8443")
    assert seen.texts(".prose strong") == ["8443"]
    visitor.post(f"{address}/say", text="@say Since March.")
    wait_for(lambda: visitor.get(address), "Since March.")
    assert [role for role, _ in list_messages(at, address)] == ["user", "assistant"] * 2
    assert address in visitor.get("/chat").links()


def test_what_was_remembered_stands_beside_the_answer(at: ServedAgent, visitor: Visitor) -> None:
    memory = at.home.remember("The staging server of tidepool listens on port 9417.", path="tidepool/port")
    at.home.upkeep.catch_up()
    address = begin(visitor, "Which port does the staging server of tidepool listen on?")
    seen = wait_for(lambda: visitor.get(address), "Remembered 1 thing, and why")
    assert f"/memories/{memory.memory_id}" in seen.links(".recalled a")
    assert "Why: it " in seen.text(".recalled")
    (nonce_link,) = [link for link in seen.links(".recalled a") if link.startswith("/recall/")]
    assert visitor.get(nonce_link).status == 200


def ask_to_write(visitor: Visitor, name: str = "a.txt") -> tuple[str, Seen]:
    """Let the agent ask for a permission; return the address, and the page that asks."""
    address = begin(visitor, f'@call write_file {{"path": "{name}", "text": "{name}\\n"}}\n@say The end.')
    return address, wait_for(lambda: visitor.get(address), "May it change", css=".question")


def answer(visitor: Visitor, address: str, page: Seen, choice: str, words: str = "") -> Seen:
    question = page.fields(".question form")["question"]
    return visitor.post(f"{address}/answer", question=question, choice=choice, words=words)


def test_a_permission_is_asked_and_allowed(at: ServedAgent, visitor: Visitor) -> None:
    address, page = ask_to_write(visitor)
    assert page.texts(".question .add") == ["+a.txt"]
    answer(visitor, address, page, "once")
    seen = wait_for(lambda: visitor.get(address), "The end.")
    assert "Wrote the new file a.txt" in seen.text()
    assert [role for role, _ in list_messages(at, address)] == ["user", "assistant", "tool", "assistant"]


def test_words_before_a_question_stand_there_once(visitor: Visitor, model: ModelServer) -> None:
    model.answers.append(Answer("I write it now.", [("write_file", {"path": "a.txt", "text": "a"})]))
    address = begin(visitor, "Write.")
    page = wait_for(lambda: visitor.get(address), "May it change", css=".question")
    assert page.text(".turn.assistant").count("I write it now.") == 1
    answer(visitor, address, page, "once")
    wait_for(lambda: visitor.get(address), "OK.")


def test_a_permission_is_denied_with_words(at: ServedAgent, visitor: Visitor) -> None:
    address, page = ask_to_write(visitor)
    answer(visitor, address, page, "deny", "put it into notes.md")
    wait_for(lambda: visitor.get(address), "The end.")
    (output,) = [text for role, text in list_messages(at, address) if role == "tool"]
    assert "says: put it into notes.md" in output


def test_always_holds_until_the_session_is_closed(visitor: Visitor) -> None:
    address, page = ask_to_write(visitor)
    answer(visitor, address, page, "always")
    wait_for(lambda: visitor.get(address), "The end.")
    visitor.post(f"{address}/say", text='@call write_file {"path": "b.txt", "text": "b"}\n@say No question.')
    seen = wait_for(lambda: visitor.get(address), "No question.")
    assert "Wrote the new file b.txt" in seen.text()


def test_an_answer_to_a_question_that_is_gone_says_so(visitor: Visitor) -> None:
    address, page = ask_to_write(visitor)
    other = answer(visitor, address, page, "deny")
    assert "does not wait any more" not in other.text()
    wait_for(lambda: visitor.get(address), "The end.")
    assert "does not wait any more" in answer(visitor, address, page, "once").text()


def test_the_model_asks_a_question(at: ServedAgent, visitor: Visitor) -> None:
    address = begin(visitor, '@call ask_user {"question": "Which <b>port</b>?", "choices": ["80", "443"]}\n@say Good.')
    page = wait_for(lambda: visitor.get(address), "Which <b>port</b>?", css=".question")
    answer(visitor, address, page, "443")
    wait_for(lambda: visitor.get(address), "Good.")
    assert ("tool", "443") in list_messages(at, address)


def test_an_answer_is_stopped_and_kept_as_far_as_it_came(at: ServedAgent, visitor: Visitor, model: ModelServer) -> None:
    event = b'data: {"choices": [{"index": 0, "delta": {"content": "It lis"}}]}\n\n'
    model.answers.append(Answer(events=[event], hangs=True))
    address = begin(visitor, "Where?")
    page = wait_for(lambda: visitor.get(address), "It lis", css="#partial")
    assert page.texts("#partial") == ["It lis"]
    assert "Stopped here." in visitor.post(f"{address}/stop").text()
    assert list_messages(at, address)[-1] == ("assistant", "It lis")
    visitor.post(f"{address}/say", text="@say On 8443.")
    wait_for(lambda: visitor.get(address), "On 8443.")


def test_a_second_message_waits_for_the_first(visitor: Visitor, model: ModelServer) -> None:
    model.answers.append(Answer("Slow.", delay_s=3.0))
    address = begin(visitor, "Slowly.")
    seen = visitor.send(f"{address}/say", [("text", "my words"), ("token", visitor.token())])
    assert (seen.status, seen.fields("#say")["text"]) == (400, "my words")
    assert "an answer goes on" in seen.text(".alert.bad")
    wait_for(lambda: visitor.get(address), "Slow.")


def test_another_way_is_a_branch(at: ServedAgent, visitor: Visitor) -> None:
    address = begin(visitor, "@say One.")
    page = wait_for(lambda: visitor.get(address), "One.")
    (link,) = [link for link in page.links() if "edit=" in link]
    form = visitor.get(link)
    assert form.fields("#say")["text"] == "@say One."
    visitor.post(f"{address}/say", {**form.fields("#say"), "text": "@say Two."})
    page = wait_for(lambda: visitor.get(address), "Two.")
    assert "One." not in page.text(".turns")
    assert "branch 2 of 2" in page.text(".turns")
    (back,) = page.links("a[rel=prev]")
    earlier = visitor.get(back)
    assert "One." in earlier.text(".turns") and "You read a branch" in earlier.text()
    visitor.post(f"{address}/say", {**earlier.fields("#say"), "text": "@say Three."})
    wait_for(lambda: visitor.get(address), "Three.")
    assert [text for role, text in list_messages(at, address) if role == "assistant"] == ["One.", "Three."]
    assert sum(isinstance(entry, Branch) for entry in read_tree(at.home, address.rpartition("/")[2])) == 2


def post_files(visitor: Visitor, address: str, text: str, *files: tuple[str, bytes]) -> Seen:
    """Send a message with files, as a browser does."""
    edge = b"----edge"
    parts = [(f'name="{name}"', value.encode()) for name, value in (("text", text), ("token", visitor.token()))]
    parts += [(f'name="files"; filename="{name}"', data) for name, data in files]
    body = b"".join(
        b"--" + edge + b"\r\nContent-Disposition: form-data; " + head.encode() + b"\r\n\r\n" + data + b"\r\n"
        for head, data in parts
    )
    kind = f"multipart/form-data; boundary={edge.decode()}"
    return visitor.ask("POST", address, body + b"--" + edge + b"--\r\n", Content_Type=kind)


def test_files_and_images_go_along(at: ServedAgent, visitor: Visitor, model: ModelServer) -> None:
    seen = post_files(visitor, "/chat", "@say Seen.", ("port.txt", b"8443\r\n"), ("look.png", PNG), ("", b""))
    assert seen.status == 303
    address = str(seen.headers["location"])
    page = wait_for(lambda: visitor.get(address), "Seen.")
    assert "port.txt" in page.text(".pasted")
    (image,) = [node.attributes["src"] or "" for node in page.tree.css(".shot img")]
    sent = visitor.get(image)
    assert (sent.body, sent.headers["content-type"]) == (PNG, "image/png")
    assert "sandbox" in sent.headers["content-security-policy"]
    assert "8443" in str(model.requests[-1].body)


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.bin", b"\x00\x01\x02", "no text"), ("a.txt", b"\xff\xfe\xfa", "neither text"),
        ("a.png", PNG + b"\0" * 5_000_001, "the maximum is"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_go_along_is_told(
    at: ServedAgent, visitor: Visitor, name: str, data: bytes, words: str
) -> None:
    seen = post_files(visitor, "/chat", "my words", (name, data))
    assert seen.status == 400
    assert words in seen.text(".alert.bad") and seen.fields("#say")["text"] == "my words"
    assert list_sessions(at.home) == []


def test_hostile_words_are_shown_as_words(visitor: Visitor) -> None:
    seen = post_files(visitor, "/chat", f"@say {HARM}", ("<b>x</b>.txt", HARM.encode()))
    page = wait_for(lambda: visitor.get(str(seen.headers["location"])), "<script>alert(1)</script><img")
    assert page.tree.css("main script, main [onerror], main b b, main a[href^='javascript']") == []
    assert "<b>x</b>.txt" in page.text(".pasted")


def test_the_mode_counts_until_it_is_changed(at: ServedAgent, visitor: Visitor) -> None:
    address = begin(visitor, "@say Hello.")
    wait_for(lambda: visitor.get(address), "Hello.")
    assert "Mode plan" in visitor.post(f"{address}/mode", mode="plan").text()
    visitor.post(f"{address}/say", text='@call write_file {"path": "a.txt", "text": "a"}\n@say Planned.')
    wait_for(lambda: visitor.get(address), "Planned.")
    assert "in plan mode" in next(text for role, text in list_messages(at, address) if role == "tool")
    assert visitor.post(f"{address}/mode", mode="sudo").status == 400


def test_a_conversation_gets_a_title_and_another_model(at: ServedAgent, visitor: Visitor, model: ModelServer) -> None:
    address = begin(visitor, "@say Hello.")
    wait_for(lambda: visitor.get(address), "Hello.")
    assert "write a title" in visitor.post(f"{address}/title", title=" ").text(".alert.bad")
    visitor.post(f"{address}/title", title="The <b>attic</b>")
    page = visitor.get(address)
    assert page.text("h1") == "The <b>attic</b>" and "The <b>attic</b>" in visitor.get("/chat").text()
    assert "answers from here on" in visitor.post(f"{address}/model", model="another").text()
    visitor.post(f"{address}/say", text="@say Me.")
    wait_for(lambda: visitor.get(address), "Me.")
    assert [request.body["model"] for request in model.requests][-1] == "another"
    assert visitor.post(f"{address}/model", model="summariser").text(".alert.bad")  # a role that nobody set


def test_a_title_is_taken_while_a_turn_is_ending(
    at: ServedAgent, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is in the archive a moment before its turn has ended."""
    make_turn = live_sessions.LiveTurn

    class LateEvent(threading.Event):
        def set(self) -> None:
            time.sleep(0.5)
            super().set()

    def make_late_turn(is_attended: bool) -> live_sessions.LiveTurn:
        turn = make_turn(is_attended)
        turn.ended = LateEvent()
        return turn

    monkeypatch.setattr(live_sessions, "LiveTurn", make_late_turn)
    address = begin(visitor, "@say Hello.")
    ends_s = time.monotonic() + 15
    while ("assistant", "Hello.") not in list_messages(at, address):
        assert time.monotonic() < ends_s
        time.sleep(0.02)
    assert not visitor.post(f"{address}/title", title="The attic").texts(".alert.bad")
    assert visitor.get(address).text("h1") == "The attic"


def test_a_summary_stands_for_the_middle(at: ServedAgent, visitor: Visitor) -> None:
    address = begin(visitor, "@say One.")
    for number in range(8):
        wait_for(lambda: visitor.get(address), f"Said {number - 1}." if number else "One.")
        visitor.post(f"{address}/say", text=f"We decided: lamp {number} is green. {'word ' * 900}\n@say Said {number}.")
    wait_for(lambda: visitor.get(address), "Said 7.")
    visitor.post(f"{address}/compact", focus="lamps")
    wait_for(lambda: visitor.get(address), "ummary", css=".turns, .alert")
    path = read_tree(at.home, address.rpartition("/")[2]).find_path()
    assert any(isinstance(entry, Boundary) for entry in path)
    visitor.post(f"{address}/say", text="@say After.")
    wait_for(lambda: visitor.get(address), "After.")


def test_a_session_of_a_terminal_goes_on(at: ServedAgent, visitor: Visitor) -> None:
    with open_session(at.home, cwd="/nowhere/shop", chat=ScriptedChat(["From a terminal."])) as session:
        session.say("Hello there.")
        address = f"/chat/{session.session}"
        held = visitor.send(f"{address}/say", [("text", "Now?"), ("token", visitor.token())])
        assert (held.status, "Another program holds" in held.text()) == (409, True)
    visitor.post(f"{address}/say", text="@say On the page.")
    wait_for(lambda: visitor.get(address), "On the page.")
    assert [text for _, text in list_messages(at, address)][1] == "From a terminal."


def test_a_stop_of_the_server_keeps_what_came(at: ServedAgent, visitor: Visitor, model: ModelServer) -> None:
    event = b'data: {"choices": [{"index": 0, "delta": {"content": "It lis"}}]}\n\n'
    model.answers.append(Answer(events=[event], hangs=True))
    address = begin(visitor, "Where?")
    wait_for(lambda: visitor.get(address), "It lis", css="#partial")
    at.end()
    at.begin()
    again = let_in(at)
    assert "Stopped here." in again.get(address).text()
    again.post(f"{address}/say", text="@say On 8443.")
    wait_for(lambda: again.get(address), "On 8443.")


def test_a_failure_of_the_model_is_told(visitor: Visitor, model: ModelServer) -> None:
    model.answers.append(Answer("the key was revoked", status=401))
    address = begin(visitor, "Where?")
    seen = wait_for(lambda: visitor.get(address), "the key was revoked", css="main")
    assert "There is no answer" in seen.text()


def test_only_the_owner_talks_with_the_agent(at: ServedAgent, visitor: Visitor) -> None:
    address = begin(visitor, "@say Hello.")
    _, secret = at.home.sharing.machines.register("bob", "phone")
    stranger = Visitor(visitor.address, at.place)
    assert stranger.send("/enter", [("secret", secret), ("to", "/")]).status == 303
    assert "/chat" not in stranger.get("/").links("nav a")
    for path in ("/chat", address, f"{address}/events"):
        assert stranger.get(path).status == 403
    token = stranger.token()
    for path in (
        "/chat",
        f"{address}/say",
        f"{address}/stop",
        f"{address}/mode",
        f"{address}/answer",
        f"{address}/title",
        f"{address}/model",
        f"{address}/compact",
    ):
        assert stranger.send(path, [("text", "hi"), ("token", token)]).status == 403


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "X-Real-IP", "Via"])
def test_a_proxy_on_this_machine_makes_no_machine_this_one(at: ServedAgent, visitor: Visitor, header: str) -> None:
    """Caddy, Traefik and `tailscale serve` say that they passed a request on; its connection is one of this machine."""
    passed_on = {header: "203.0.113.9"}
    address = begin(visitor, "@say Hello.")
    for path in ("/chat", address, f"{address}/events"):
        assert visitor.ask("GET", path, **passed_on).status == 403
    assert visitor.ask("GET", "/search", **passed_on).status == 200
    bearer = {"Authorization": f"Bearer {at.secret}"}
    assert visitor.ask("GET", "/v1/models", **bearer).status == 200
    assert visitor.ask("GET", "/v1/models", **bearer, **passed_on).status == 403


def test_a_foreign_form_is_refused(at: ServedAgent, visitor: Visitor) -> None:
    seen = visitor.send("/chat", [("text", "@say Hello."), ("token", "wrong")])
    assert seen.status == 403
    pairs = [("text", "@say Hello."), ("token", visitor.token())]
    assert visitor.send("/chat", pairs, Sec_Fetch_Site="cross-site").status == 403
    assert list_sessions(at.home) == []


def test_nothing_is_said_without_words_or_during_a_pause(at: ServedAgent, visitor: Visitor) -> None:
    assert "write a message" in visitor.post("/chat", text=" \n ").text(".alert.bad")
    assert visitor.get("/chat/s0000000000").status == 404
    assert visitor.post("/chat/s0000000000/say", text="hello").status == 404
    at.home.captures.pause()
    try:
        seen = visitor.post("/chat", text="my words")
        assert "capture is paused" in seen.text(".alert.bad") and seen.fields("#say")["text"] == "my words"
    finally:
        at.home.captures.resume()


def test_a_folder_that_cannot_be_is_refused(visitor: Visitor) -> None:
    seen = visitor.post("/chat", text="hello", folder="/" + "a" * 5000)
    assert seen.status == 400 and "no such folder" in seen.text()


def test_events_tell_of_the_answer(visitor: Visitor, model: ModelServer) -> None:
    import http.client

    address = begin(visitor, "@say Hello.")
    wait_for(lambda: visitor.get(address), "Hello.")
    line = http.client.HTTPConnection(urlsplit(visitor.address).netloc, timeout=20)
    cookie = "; ".join(f"{name}={value}" for name, value in visitor.cookies.items())
    line.request("GET", f"{address}/events", headers={"Cookie": cookie})
    stream: Any = line.getresponse()
    assert stream.readline() == b"event: change\n"
    chunk = b'data: {"choices": [{"index": 0, "delta": {"content": "password=hunter2hunter2 <b>"}}]}\n\n'
    model.answers.append(Answer(events=[chunk], hangs=True))
    visitor.post(f"{address}/say", text="A key?")
    lines: list[bytes] = []
    threading.Timer(15, line.close).start()
    while not (lines and lines[-1].startswith(b'data: "') and b"<b>" in lines[-1]):
        lines.append(stream.readline())
    assert b"hunter2" not in lines[-1]
    visitor.post(f"{address}/stop")
    line.close()
