"""What each surface can show: the value of `{{platform}}` in system.md. Pure, and the only table of it.

The names are those that the surfaces pass. A client with hooks is its own name alone, because its own system prompt
says what it can show. A value is one line of at most `layers.MAX_VALUE_CHARS` characters, as every variable.
"""

from __future__ import annotations

from typing import NamedTuple

CHAT, CONSOLE, EDITOR, WEB, TELEGRAM, MAIL, JOBS, API = (
    "chat", "console", "acp", "web", "telegram", "mail", "jobs", "api",
)  # fmt: skip


class Platform(NamedTuple):
    """A surface, and what it can show of a message of the model."""

    kind: str
    markup: str
    has_tables: bool
    has_pictures: bool
    advice: str = ""
    max_chars: int = 0  # of one message; 0: no limit


PLATFORMS = {
    CHAT: Platform("a terminal", "Markdown", True, False, "80 columns"),
    CONSOLE: Platform("standard output, often of a script", "plain text", False, False, "the answer alone"),
    EDITOR: Platform("an editor", "Markdown", True, False, "name files by their paths"),
    WEB: Platform("a page in a browser", "Markdown", True, False),
    # core.telegram.org/bots/api, November 2026: the text of a message, and the entities in it
    TELEGRAM: Platform("Telegram", "bold, italic, code and links", False, False, "no headings", 4096),
    MAIL: Platform("a mail", "plain text", False, False, "complete, because an answer takes long"),
    JOBS: Platform("a job that nobody watches", "Markdown", True, False, "ask nothing; the outcome first"),
    API: Platform("a program", "plain text", False, False),
}


def describe_platform(name: str) -> str:
    """Return a platform with what it can show; a name that is not in the table as it is.

    >>> describe_platform("web"), describe_platform("claude-code")
    ('web (a page in a browser: Markdown; tables; no pictures)', 'claude-code')
    """
    platform = PLATFORMS.get(name)
    if platform is None:
        return name
    abilities = [
        platform.markup,
        "tables" if platform.has_tables else "no tables",
        "pictures" if platform.has_pictures else "no pictures",
        f"at most {platform.max_chars:,} characters a message" if platform.max_chars else "",
        platform.advice,
    ]
    return f"{name} ({platform.kind}: {'; '.join(filter(None, abilities))})"
