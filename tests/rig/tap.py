"""What stands between a client and the proxy, and keeps the client's bytes; and the check that the proxy added and
changed nothing else.
"""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

from rig.upstream import Reply, Sent, Upstream

_TEXT = rb'(?:[^"\\]|\\.)*'
_OPENING = b'[{"type":"text","text":'  # of a string of Anthropic's that became a list
_BLOCK = re.compile(
    rb',\{"type":"(?:input_)?text","text":"\[perdure-[a-z]+ ' + _TEXT + rb'"\}|\\n\\n\[perdure-[a-z]+ ' + _TEXT
)
_HOP_HEADERS = ("host", "connection", "transfer-encoding", "content-length", "date", "server", "keep-alive")


@contextmanager
def tap(base: str) -> Iterator[Upstream]:
    """Pass requests on to `base`; `sent` is what the client sent. An answer is passed on when it is whole."""
    parts = urlsplit(base)

    def forward(sent: Sent) -> Reply:
        headers = {name: value for name, value in sent.headers if name.lower() not in _HOP_HEADERS}
        with closing(http.client.HTTPConnection(parts.hostname, parts.port, timeout=120)) as connection:
            connection.request(sent.method, parts.path + sent.path, sent.body, headers)
            answer = connection.getresponse()
            more = {name: value for name, value in answer.getheaders() if name.lower() not in _HOP_HEADERS}
            return Reply([answer.read()], answer.status, more, has_length=True)

    with Upstream(forward) as listening:
        yield listening


def remove_added(sent: bytes, client_bytes: bytes) -> bytes:
    """`sent` without the blocks, and without the brackets that made a list of a string.

    Where the list came from, a list or a string, only the client's own bytes can tell.
    """
    rest, end = b"", 0
    for match in _BLOCK.finditer(sent):
        piece = rest + sent[end : match.start()]
        if client_bytes.startswith(piece):
            rest, end = piece, match.end()
            continue
        before, opening, text = piece.rpartition(_OPENING)
        if not (opening and text.endswith(b"}") and sent[match.end() : match.end() + 1] == b"]"):
            return sent  # it was not ours to add
        rest, end = before + text[:-1], match.end() + 1
    return rest + sent[end:]


def assert_only_blocks_added(sent: Sequence[bytes], received: Sequence[bytes]) -> None:
    """Each request of a client came to its provider once, with its bytes and nothing but blocks beside them.

    Their order may differ: clients ask for several things at once.
    """
    unmatched = list(received)
    for body in sent:
        match = next((raw for raw in unmatched if remove_added(raw, body) == body), None)
        assert match is not None, f"no such request came: {body[:500]!r}"
        unmatched.remove(match)
    assert not unmatched and len(b"".join(received)) > len(b"".join(sent)) > 0
