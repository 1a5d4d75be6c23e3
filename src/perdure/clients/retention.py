"""How long clients keep their own transcripts before they delete them, read from their settings.

Perdure keeps its copy until somebody forgets it; this module says how long there is another one. The defaults
were checked in the clients that docs/clients.md is tested with. Reads only; settings that cannot be read count
as missing, because a client then uses its defaults too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.clients import setup

_DEFAULT_DAYS = 30.0  # of Claude Code ("cleanupPeriodDays", default 30) and Gemini CLI ("maxAge", default "30d")
_AGE = re.compile(r"(\d{1,6})([hdwm])")
_UNIT_DAYS = {"h": 1 / 24, "d": 1.0, "w": 7.0, "m": 30.0}
_CLAUDE_SETTING = "cleanupPeriodDays"
_GEMINI_SETTING = "general.sessionRetention"
SOURCES = {  # client -> where its makers say it
    "claude-code": "https://code.claude.com/docs/en/settings",  # and the schema in 2.1.330: minimum 1
    "codex": "https://github.com/openai/codex/issues/28187",  # open: no setting, nothing is deleted
    "pi": "https://github.com/badlogic/pi-mono/blob/main/packages/coding-agent/docs/sessions.md",  # by hand only
    "gemini-cli": "https://geminicli.com/docs/cli/session-management/",
    "opencode": "https://github.com/sst/opencode/issues/4980",  # "No it does not"
    # Its settings delete backups and logs alone, as its own documents say.
    "qwen-code": "https://github.com/QwenLM/qwen-code/blob/main/docs/users/configuration/settings.md",
    "kimi-code": "https://github.com/MoonshotAI/kimi-code",  # nothing in 2.1.0 deletes a session but a person
}


@dataclass(frozen=True, slots=True)
class Retention:
    """How long one client keeps its transcripts."""

    client: str
    days: float | None  # since a session was last used; None: until somebody deletes it
    setting: str = ""  # the setting that decides; "" if the client has none
    is_default: bool = True  # nobody changed that setting
    max_sessions: int | None = None  # Gemini CLI deletes the oldest of more


def read_retention(client: str, user_home: Path, environment: Callable[[str], str | None]) -> Retention:
    """Return how long a client on this machine keeps its transcripts. Raises KeyError for an unknown client."""
    if client == "claude-code":
        return to_claude_retention(_read_settings(client, user_home, environment))
    if client == "gemini-cli":
        return to_gemini_retention(_read_settings(client, user_home, environment))
    if client not in SOURCES:
        raise KeyError(client)
    return Retention(client, None)


def to_claude_retention(settings: Mapping[str, Any]) -> Retention:
    """Read Claude Code's settings.

    >>> to_claude_retention({"cleanupPeriodDays": 365}).days, to_claude_retention({}).days
    (365.0, 30.0)
    """
    days = settings.get(_CLAUDE_SETTING)
    if isinstance(days, int) and not isinstance(days, bool) and days > 0:
        return Retention("claude-code", float(days), _CLAUDE_SETTING, is_default=False)
    return Retention("claude-code", _DEFAULT_DAYS, _CLAUDE_SETTING)


def to_gemini_retention(settings: Mapping[str, Any]) -> Retention:
    """Read Gemini CLI's settings.

    >>> to_gemini_retention({"general": {"sessionRetention": {"maxAge": "2w", "maxCount": 50}}})
    Retention(client='gemini-cli', days=14.0, setting='general.sessionRetention', is_default=False, max_sessions=50)
    >>> to_gemini_retention({"general": {"sessionRetention": {"enabled": False}}}).days is None
    True
    """
    general = settings.get("general")
    chosen = general.get("sessionRetention") if isinstance(general, dict) else None
    if not isinstance(chosen, dict) or not chosen:
        return Retention("gemini-cli", _DEFAULT_DAYS, _GEMINI_SETTING)
    if chosen.get("enabled") is False:
        return Retention("gemini-cli", None, _GEMINI_SETTING, is_default=False)
    match = _AGE.fullmatch(str(chosen.get("maxAge", "")))
    days = int(match[1]) * _UNIT_DAYS[match[2]] if match else _DEFAULT_DAYS
    count = chosen.get("maxCount")
    max_sessions = count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else None
    return Retention("gemini-cli", days, _GEMINI_SETTING, is_default=False, max_sessions=max_sessions)


def _read_settings(client: str, user_home: Path, environment: Callable[[str], str | None]) -> Mapping[str, Any]:
    try:
        settings = json.loads(setup.find_client_settings(client, user_home, environment).read_bytes())
    except (OSError, ValueError):
        return {}
    return settings if isinstance(settings, dict) else {}
