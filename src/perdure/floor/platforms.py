"""What each surface can show: the value of `{{platform}}` in system.md. Pure, and the only table of it.

The names are those that the surfaces pass; a client with hooks is its own name alone, because its own system prompt
says what it can show. A value is one line of at most `layers.MAX_VALUE_CHARS` characters, as every variable.
"""

from __future__ import annotations

CHAT, CONSOLE, EDITOR, WEB, TELEGRAM, MAIL, JOBS, API = (
    "chat", "console", "acp", "web", "telegram", "mail", "jobs", "api",
)  # fmt: skip
_ABILITIES = {
    CHAT: "a terminal; Markdown is drawn, narrow tables and code too; no pictures; a person reads along and can answer",
    CONSOLE: "standard output, often of a script; plain text, no Markdown is drawn, no pictures; the answer alone",
    EDITOR: "an editor; Markdown is drawn, code blocks too; short answers beside the code; name files with their paths",
    WEB: "a page in a browser; Markdown is drawn, tables, code and links too; any length",
    TELEGRAM: "messages of at most 4,096 characters; bold, italic, code and links; no headings, no tables; be brief",
    MAIL: "a mail; plain text in short lines, no Markdown, no tables; complete, because an answer takes long",
    JOBS: "a job that nobody watches; nobody answers a question; a report in Markdown, its outcome first",
    API: "a program; no length is set; it is not known what is drawn: plain text that reads well without Markdown",
}  # of Telegram: the limit of one message, and its entities, core.telegram.org/bots/api, November 2026


def describe_platform(name: str) -> str:
    """Return a platform with what it can show; a name that is not in the table as it is.

    >>> describe_platform("claude-code")
    'claude-code'
    """
    abilities = _ABILITIES.get(name)
    return f"{name} ({abilities})" if abilities else name


def list_platforms() -> list[str]:
    """Return the names with a description, in their order."""
    return list(_ABILITIES)
