"""The lines of the layer `recent`: the latest conversations of one project, as what the person asked. Pure.

A conversation without a request (`find_request`) has no line.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import tzinfo

from perdure.formats.prompt_text import find_request
from perdure.index.session_turns import RecentConversation
from perdure.text import one_line

MAX_CONVERSATIONS = 5  # in the layer
_MAX_REQUEST_CHARS = 100
_MAX_ANSWER_CHARS = 80


def render_conversation(conversation: RecentConversation, zone: tzinfo | None) -> str:
    """Return the line of a conversation: when, in which client, the first and last request, the last answer.

    Returns "" for a conversation without a request.
    """
    requests = _list_requests(conversation.first_prompts) or _list_requests(conversation.last_prompts[::-1])
    if not requests:
        return ""
    last_request = next(iter(_list_requests(conversation.last_prompts)), requests[0])
    answer = one_line(conversation.last_answer, _MAX_ANSWER_CHARS)
    parts = [
        f'{conversation.last_at.astimezone(zone):%Y-%m-%d %H:%M}, {conversation.runtime}: asked "{requests[0]}"',
        f'last asked "{last_request}"' if last_request != requests[0] else "",
        f"last answer: {answer}" if answer else "",
    ]
    return "; ".join(filter(None, parts))


def _list_requests(prompts: Iterable[str]) -> list[str]:
    return [request for prompt in prompts if (request := find_request(prompt, _MAX_REQUEST_CHARS))]
