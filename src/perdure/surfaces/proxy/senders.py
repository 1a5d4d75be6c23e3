"""Who sends a request: which client, in which session and folder, and whether it is a person's turn at all. Pure.

A client names itself in headers; its folder stands in what it tells the model. Calls that only make a title or a
summary are told by their words, or by the lack of tools where the client is an agent that always has some.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from perdure.regex import lazy_re
from perdure.surfaces.proxy.conversations import Conversation, Json, find_typed_text, list_texts

_AGENT_OPENINGS = {  # how the user agent of a client begins -> its name; each of them always sends tools
    "claude-cli/": "claude-code",
    "codex": "codex",
    "opencode/": "opencode",
    "GeminiCLI": "gemini-cli",
    "pi/": "pi",
}
_SDK_OPENINGS = {
    "Anthropic/": "anthropic",
    "AsyncAnthropic/": "anthropic",
    "OpenAI/": "openai",
    "AsyncOpenAI/": "openai",
}
_SESSION_HEADERS = ("x-claude-code-session-id", "session-id", "session_id", "x-session-id", "conversation_id")
_SESSION_ID = re.compile(r"[\w.:-]{8,128}")
_CODEX_METADATA = "x-codex-turn-metadata"
_FOLDER = lazy_re(r"(?:[Ww]orking directory: |<cwd>)(/[^\n<]{0,1000})")
_SIDE_CALL = lazy_re(  # how the prompt of a title, a summary or a compaction begins, or what it asks for
    r"\A\s*(?:"
    r"CRITICAL: Respond with TEXT ONLY|"  # Claude Code, a compaction
    r"Your task is to create a detailed summary of the conversation|"
    r"You are performing a CONTEXT CHECKPOINT COMPACTION|"  # Codex
    r"Generate a title for this conversation|"  # OpenCode
    r"### Task:|"  # Open WebUI: titles, tags, follow-ups, searches
    r"(?:Please )?(?:write|generate|create|provide|give)[^.\n]{0,60}\b(?:title|summary)\b"
    r"[^.\n]{0,40}\b(?:conversation|chat|thread|session)\b|"
    r"(?:Please )?summari[sz]e (?:this|the)(?: coding| above| whole| entire)? (?:conversation|chat|session)\b"
    r")",
    re.IGNORECASE,
)
_SIDE_SYSTEM = lazy_re(
    r"\A\s*(?:You are a title generator|You are tasked with generating[^.\n]{0,40}title|Generate[^.\n]{0,60}\btitle\b|"
    r"(?:Ignore (?:all )?previous instructions\.\s*)?"  # SillyTavern: a summary, asked for behind the conversation
    r"Summari[sz]e\b[^.\n]{0,80}\b(?:so far|conversation|chat)\b)",
    re.I,
)
OWN_BLOCK = "[perdure-recall "  # how the block begins that a hook of ours gave to the client


@dataclass(frozen=True, slots=True)
class Sender:
    """The client of a request."""

    client: str  # its name; "" if it does not say
    session: str = ""  # its own id of the session; "" if it sends none
    agent: str = ""  # of the sub-agent that asks
    is_side_call: bool = False  # a title, a summary, a compaction: no turn of a session

    @property
    def is_agent_program(self) -> bool:
        """True if it is a coding agent, which may have hooks of ours."""
        return self.client in _AGENT_OPENINGS.values()


def identify_sender(headers: Mapping[str, str], conversation: Conversation) -> Sender:
    """Return who sends this request. headers: by name in lower case."""
    user_agent = headers.get("user-agent", "")
    openings = _AGENT_OPENINGS | _SDK_OPENINGS
    client = next((name for opening, name in openings.items() if user_agent.startswith(opening)), "")
    metadata = _read_metadata(headers.get(_CODEX_METADATA, ""))
    agent = headers.get("x-claude-code-agent-id", "") or metadata.get("agent_name", "").strip("/").removeprefix("root")
    return Sender(
        client,
        next(filter(None, (_clean_id(headers.get(name, "")) for name in _SESSION_HEADERS)), ""),
        _clean_id(agent.strip("/")) or ("agent" if agent.strip("/") else ""),
        metadata.get("request_kind", "turn") != "turn" or _is_side_call(client, conversation),
    )


def _read_metadata(value: str) -> dict[str, str]:
    try:
        fields = msgspec.json.decode(value or "{}", type=dict[str, object])
    except msgspec.MsgspecError:
        return {}
    return {name: item for name, item in fields.items() if isinstance(item, str)}


def _clean_id(value: str) -> str:
    return value if _SESSION_ID.fullmatch(value) else ""


def _is_side_call(client: str, conversation: Conversation) -> bool:
    """Return True if the request makes a title or a summary, or is one of an agent without tools."""
    if client in _AGENT_OPENINGS.values() and not conversation.get("tools"):
        return True
    newest: Json = next((m.value for m in reversed(conversation.messages) if m.value.get("role") == "user"), {})
    if _SIDE_CALL.match(find_typed_text(newest)):
        return True
    return any(_SIDE_SYSTEM.match(text) for text in conversation.list_system_texts())


def find_folder(conversation: Conversation) -> str:
    """Return the folder that the client works in, as it tells its model; "" if it tells none.

    Only the program's own words count: what a person or a tool says must not open another project's memory.
    """
    for text in conversation.list_system_texts():
        if match := _FOLDER.search(text):
            return str(match[1]).strip()
    return ""


def has_own_block(conversation: Conversation) -> bool:
    """Return True if the client itself sends a block of Perdure: it has hooks, wherever they are installed.

    In tools' output such a block may stand for other reasons.
    """
    texts = (list_texts(m.value.get("content")) for m in conversation.messages if m.value.get("role") != "assistant")
    return any(OWN_BLOCK in text for message_texts in texts for text in message_texts)
