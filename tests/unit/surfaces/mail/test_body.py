"""What is read of a mail's body."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.surfaces.mail.body import MAX_HTML_CHARS, read_body, split_quoted, to_text
from perdure.surfaces.mail.charsets import decode_text
from perdure.surfaces.mail.sender import list_ids, read_address, read_headers, read_words

LINES = st.sampled_from(
    [b"Content-Type: multipart/mixed; boundary=b", b"--b", b"--b--", b"", b"Content-Type: text/plain; charset=x",
     b"Content-Type: message/rfc822", b"Content-Transfer-Encoding: base64", b"=?utf-8?b?//8=?=", b"> quoted", b"words",
     b"Content-Disposition: attachment; filename*0*=utf-8''%ff", b"<p>x<blockquote>", b"\xff\xfe\0", b"On x wrote:",
     b"Content-Type: text/html", b" folded: x"]
)  # fmt: skip


@given(st.lists(LINES, max_size=40))
def test_no_mail_raises(lines: list[bytes]) -> None:
    raw = b"\r\n".join(lines)
    body = read_body(raw)
    body.written.encode(), body.whole.encode()
    read_headers(raw)


@given(st.text(max_size=200), st.binary(max_size=200))
def test_no_header_raises(text: str, data: bytes) -> None:
    assert read_address([text]) == "" or "@" in read_address([text])
    assert "\n" not in read_words(text)
    assert all(name.isascii() for name in list_ids([text]))
    decode_text(data, text[:20])


@given(
    st.lists(st.sampled_from(["> a", "words", "", "On x, y wrote:", "-- ", "-----Original Message-----"]), max_size=12)
)
def test_what_is_written_holds_no_quote_and_nothing_new(lines: list[str]) -> None:
    written, whole = split_quoted("\n".join(lines))
    assert not any(line.startswith(">") for line in written.split("\n"))
    assert bool(whole) == any(line.startswith((">", "-----Original")) for line in lines)
    assert set(written.split("\n")) <= {*lines, ""}


def test_an_answer_between_quotes_is_kept() -> None:
    text = "On Mon, 3 Nov 2026 at 10:00, Agent\n<agent@home.example> wrote:\n> Which port?\n8443.\n> Which host?\natlas"
    assert split_quoted(text) == ("8443.\natlas", text)


def test_an_outlook_answer_ends_at_the_original_message() -> None:
    assert split_quoted("Yes.\n\n-----Original Message-----\nFrom: x\nIs it?")[0] == "Yes."


@pytest.mark.parametrize(
    "begin",
    [
        "---------- Forwarded message ---------\nDe : Eve",
        "-------- Message transféré --------\n\nSujet : x",
        "----- 転送メッセージ -----\n差出人: Eve",
        "Von: Eve <eve@evil.example>\nGesendet: Montag\nAn: Ada\nCc: Bob\nBetreff: AW: x",
        "*From:* Eve\n*Sent:* Monday\n*To:* Ada\n*Subject:* x",
        "________________________________\nFrom: Eve",
    ],
)
def test_a_quoted_mail_is_known_in_any_language(begin: str) -> None:
    text = f"{begin}\n\nMy name is Mallory."
    assert split_quoted(text) == ("", text)
    assert split_quoted(f"Look.\n\n{text}")[0] == "Look."


@pytest.mark.parametrize(
    "text",
    [
        "----- Ports -----\n8443 is nginx",
        "From: Hamburg\nTo: Kiel\nWhich train?",
        "Da: the door.\nDe: the key.",
        "a\n-----\nb",
    ],
)
def test_words_that_look_like_a_head_stay_words(text: str) -> None:
    assert split_quoted(text) == (text, "")


def test_a_quote_below_a_signature_is_quoted() -> None:
    text = "Look.\n-- \nAda\n\nOn Mon, Eve wrote:\n> Is it?"
    assert split_quoted(text) == ("Look.", text)
    assert split_quoted("Look.\n-- \nAda") == ("Look.", "")


def test_hostile_pages_take_little_time() -> None:
    started_s = time.process_time()
    for piece in ("<a ", "<!--", "<", '<a b="', "&#", "</", "<script>", "<blockquote>"):
        to_text(piece * (MAX_HTML_CHARS // len(piece)))
    assert time.process_time() - started_s < 20


def test_an_enclosed_mail_is_a_file_and_not_the_body() -> None:
    raw = (
        b"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: message/rfc822\r\n\r\n"
        b"Subject: old\r\n\r\nenclosed words\r\n--b\r\nContent-Type: text/plain\r\n\r\nmine\r\n--b--\r\n"
    )
    body = read_body(raw)
    assert body.written == "mine" and [file.text for file in body.files] == ["enclosed words"]
