"""Decode bytes in the charset that a mail names. Pure; any name and any bytes give text."""

from __future__ import annotations

import codecs
import re

# Python knows more names than those of charsets: some unpack, some need the square of the length.
_CHARSETS = re.compile(
    r"utf-(?:8|16|32).*|ascii|iso\d+.*|latin.*|cp\d+|koi8.*|gb\d+|gbk|hz|big5.*|euc.*|shift_jis.*|mac.*|tis-620|ptcp154|johab"
)


def decode_text(data: bytes, charset: str) -> str:
    """Return bytes as text. What does not decode becomes U+FFFD; an unknown charset is read as UTF-8, then Latin-1.

    >>> decode_text(b"caf\\xe9", "iso-8859-1"), decode_text(b"caf\\xe9", "no-such"), decode_text(b"x", "zlib")
    ('café', 'café', 'x')
    """
    try:
        name = codecs.lookup(charset).name
    except (LookupError, ValueError, TypeError):
        name = ""
    if _CHARSETS.fullmatch(name):
        return data.decode(name, "replace")
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")
