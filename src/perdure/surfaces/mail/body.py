"""Read the body of a mail: what its sender wrote, what it quotes, and its files. Pure and bounded.

No archive is unpacked, and nothing is looked up or loaded. A mail of a form that no mail program writes (hundreds of
parts) has no body for us. What is quoted stands beside what was written, as data.
"""

from __future__ import annotations

import email
import email.policy
import re
from collections.abc import Iterator, Sequence
from email.errors import MessageError
from email.message import Message
from html import unescape

import msgspec

from perdure.agent.image_size import find_image_type
from perdure.delivery.message import clean_name
from perdure.surfaces.mail.charsets import decode_text
from perdure.surfaces.mail.sender import read_words

MAX_PARTS = 100  # of a mail
MAX_WRITTEN_CHARS = 30_000  # of what the sender wrote
MAX_FILE_CHARS = 30_000  # of one text file, or of what is quoted
MAX_FILES = 20  # whose content is read; of the others the names
MAX_IMAGES = 5
MAX_IMAGE_BYTES = 5_000_000
MAX_HTML_CHARS = 500_000
_PART_MARK = re.compile(rb"(?i)boundary|message/(?:rfc822|global|partial|external)")
_PART_HEADER = re.compile(rb"(?im)^content-[a-z-]+:[^\n]*(?:\n[ \t][^\n]*)*")
_MAX_PART_HEADER_BYTES = 10_000  # reading the parameters of a longer one takes the square of its length
_TAG = re.compile(r"/?[a-zA-Z][a-zA-Z0-9]*")
_SKIPPED = ("script", "style", "head", "title", "template", "noscript")
_BREAKS = ("br", "p", "div", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "table", "ul", "ol", "pre")
_ORIGINAL = re.compile(
    r"(?i)\s*-{2,}\s*(?:original message|forwarded message|ursprüngliche nachricht)\s*-{2,}\s*|_{20,}\s*"
)
_DASHED = re.compile(r"\s*-{5,}[^-]{3,80}-{5,}\s*")  # the same in another language, if a header follows
_HEADER = re.compile(r"\W*\w[\w .-]{0,30}[*_]*\s?[:：]\s*\S")
_FROM = re.compile(r"(?i)[\s*_]*(?:from|von|de|da|van|från|fra|od|от|差出人|发件人|寄件者)[*_]*\s?[:：]")
_SUBJECT = re.compile(
    r"(?i)[\s*_]*(?:subject|betreff|objet|sujet|asunto|assunto|oggetto|onderwerp|ämne|emne|temat|тема|件名|主题|主旨)[*_]*\s?[:：]"
)
_MAX_HEADER_LINES = 8  # of a quoted mail, from its sender to its subject
_TOO_MANY = "The mail has too many parts to be read."


class MailFile(msgspec.Struct, frozen=True):
    """A file of a mail, as far as it is read."""

    name: str
    text: str = ""  # what stands beside the message
    image: bytes = b""
    media_type: str = ""  # of the image


class MailBody(msgspec.Struct, frozen=True):
    """What a mail says."""

    written: str = ""  # by its sender, without what it quotes
    whole: str = ""  # with it; "" if nothing is quoted
    files: tuple[MailFile, ...] = ()
    problem: str = ""  # why not all of it was read, for its sender


def read_body(raw: bytes, *, n_bytes: int = 0) -> MailBody:
    """Return what a mail says. n_bytes: of the whole mail, where `raw` is its beginning. Raises nothing."""
    has_long_header = any(len(match[0]) > _MAX_PART_HEADER_BYTES for match in _PART_HEADER.finditer(raw))
    if has_long_header or len(_PART_MARK.findall(raw)) > MAX_PARTS:
        return MailBody(problem=_TOO_MANY)
    try:
        parts = list(_list_leaves(email.message_from_bytes(raw, policy=email.policy.compat32)))
    except (RecursionError, MessageError, ValueError, LookupError, TypeError, AttributeError):
        return MailBody(problem=_TOO_MANY)
    body = next((part for part in parts if _is_body(part, "text/plain")), None)
    html = next((part for part in parts if _is_body(part, "text/html")), None)
    text = _read_text(body) if body is not None else ""
    if html is not None and not text.strip():  # some programs write an empty text beside it
        text = to_text(_read_text(html))
    written, whole = split_quoted(text)
    problem = f"The mail has {n_bytes:,} bytes; I read the first {len(raw):,}." if n_bytes > len(raw) else ""
    if len(written) > MAX_WRITTEN_CHARS:
        problem = f"The text has {len(written):,} characters; I read the first {MAX_WRITTEN_CHARS:,}."
    files = tuple(_list_files(part for part in parts if part is not body and not _is_body(part, "text/html")))
    return MailBody(written[:MAX_WRITTEN_CHARS], _clip(whole), files, problem)


def _list_leaves(message: Message) -> Iterator[Message]:
    """Yield the parts without parts, in order; those of an enclosed mail are told by `X-Enclosed`."""
    stack: list[tuple[Message, bool]] = [(message, False)]
    while stack:
        part, is_enclosed = stack.pop()
        payload = part.get_payload()
        if isinstance(payload, list):
            inside = is_enclosed or part.get_content_maintype() == "message"
            stack += [(child, inside) for child in reversed(payload) if isinstance(child, Message)]
            continue
        if is_enclosed:
            part["X-Enclosed"] = "yes"
        yield part


def _is_body(part: Message, content_type: str) -> bool:
    return (
        part.get_content_type() == content_type
        and part.get_content_disposition() != "attachment"
        and not _get_name(part)
        and "X-Enclosed" not in part
    )


def _get_name(part: Message) -> str:
    try:
        return read_words(str(part.get_filename() or ""))
    except (ValueError, LookupError, TypeError):
        return "file"


def _read_bytes(part: Message) -> bytes:
    try:
        payload = part.get_payload(decode=True)
    except (ValueError, LookupError, TypeError, AttributeError):
        payload = None
    return payload if isinstance(payload, bytes) else b""


def _read_text(part: Message) -> str:
    text = decode_text(_read_bytes(part), str(part.get_param("charset") or "utf-8"))
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")


def _list_files(parts: Iterator[Message]) -> Iterator[MailFile]:
    """Yield the files of a mail: texts and images with their content, all others by name."""
    n_images = 0
    for number, part in enumerate(parts, start=1):
        content_type = part.get_content_type()
        name = clean_name(_get_name(part)) if _get_name(part) else f"part {number}, {content_type}"
        data = _read_bytes(part)
        kind = find_image_type(data)
        if number > MAX_FILES:
            yield MailFile(name, f"({len(data):,} bytes; only the first {MAX_FILES} files are read)")
        elif kind and n_images < MAX_IMAGES and len(data) <= MAX_IMAGE_BYTES:
            n_images += 1
            yield MailFile(name, "The image of this message.", data, kind)
        elif content_type.startswith("text/") and b"\0" not in data:
            text = _read_text(part)
            yield MailFile(name, _clip(to_text(text) if content_type == "text/html" else text))
        else:
            yield MailFile(name, f"({len(data):,} bytes of {content_type}; not read)")


def _clip(text: str) -> str:
    if len(text) <= MAX_FILE_CHARS:
        return text
    return f"{text[:MAX_FILE_CHARS]}\n[{len(text):,} characters in all; the rest is left out]"


def split_quoted(text: str) -> tuple[str, str]:
    r"""Return what the sender wrote, and the whole text; the second is "" if nothing is quoted.

    >>> split_quoted("Yes.\n\nOn Mon, Ada wrote:\n> Is it?\n-- \nAda")[0]
    'Yes.'
    """
    lines = text.split("\n")
    written: list[str] = []
    n_quoted = 0
    for number, line in enumerate(lines):
        if line == "-- ":
            n_quoted += sum(_is_quoted(lines, n) for n in range(number, len(lines)))
            break
        if _begins_original(lines, number):
            n_quoted += len(lines) - number
            break
        if line.startswith(">"):
            if not n_quoted or not lines[number - 1].startswith(">"):
                _drop_attribution(written)
            n_quoted += 1
            continue
        written.append(line)
    words = "\n".join(written).strip()
    return (words, text.strip()) if n_quoted else (words, "")


def _is_quoted(lines: Sequence[str], number: int) -> bool:
    return lines[number].startswith(">") or _begins_original(lines, number)


def _begins_original(lines: Sequence[str], number: int) -> bool:
    """Return True for the line from which on another mail stands: answered at its top, or forwarded."""
    line = lines[number]
    if _ORIGINAL.fullmatch(line):
        return True
    if not (_DASHED.fullmatch(line) or _FROM.match(line)):
        return False
    later = [line for line in lines[number + 1 : number + 1 + _MAX_HEADER_LINES] if line.strip()]
    return any(map(_SUBJECT.match, later)) if _FROM.match(line) else bool(later and _HEADER.match(later[0]))


def _drop_attribution(written: list[str]) -> None:
    """Drop the line or the two before a quote that say whose words come: "On …, Ada wrote:"."""
    end = len(written)
    while end and not written[end - 1].strip():
        end -= 1
    if not end or not written[end - 1].rstrip().endswith(":"):
        return
    begin = end - 1
    if begin and written[begin - 1].strip() and "@" in written[begin] and "@" not in written[begin - 1]:
        begin -= 1  # the line was folded before the address
    del written[begin:]


def to_text(html: str) -> str:
    r"""Return the text of an HTML page; a blockquote as lines that begin with ">". It takes time linear in its length,
    which html.parser does not.

    >>> to_text("<style>x</style><p>Yes.</p><blockquote>Is it?</blockquote>")
    'Yes.\n\n> Is it?'
    """
    pieces: list[str] = []
    n_skipped = n_quotes = 0
    is_comment = False
    first, *rest = html[:MAX_HTML_CHARS].split("<")
    for inside in ("x>" + first, *rest):  # a tag, and the words behind it
        if is_comment or inside.startswith("!--"):
            _, end, words = inside.partition("-->")
            is_comment, tag = not end, ""
        else:
            mark, end, words = inside.partition(">")
            match = _TAG.match(mark)
            if not end or (not match and mark[:1] not in "!?/"):
                words, match = f"<{inside}", None
            tag = match[0].lower() if match else ""
        name = tag.removeprefix("/")
        step = -1 if tag.startswith("/") else 1
        n_skipped = max(0, n_skipped + step * (name in _SKIPPED))
        n_quotes = max(0, n_quotes + step * (name == "blockquote"))
        if name in _BREAKS:
            pieces.append("\n> " if n_quotes else "\n")
        if words and not n_skipped:
            pieces.append(f"{' ' * words[:1].isspace()}{' '.join(words.split())}{' ' * words[-1:].isspace()}")
    lines = ["" if (line := raw.strip()) == ">" else line for raw in _unescape("".join(pieces)).split("\n")]
    kept = [line for n, line in enumerate(lines) if line or (n and lines[n - 1])]
    return "\n".join(kept).strip()


def _unescape(text: str) -> str:
    try:
        return unescape(text)
    except ValueError:  # a number of thousands of digits
        return text
