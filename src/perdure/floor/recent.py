"""The lines of the layer `recent`: the latest conversations of one project, as what the person asked. Pure.

A message that a program wrote, or that says too little to name a conversation, is no request. A
conversation without a request has no line.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import tzinfo

from perdure.capture.events import is_command
from perdure.formats.prompt_text import is_machine_text, split_typed_text
from perdure.index.session_turns import RecentConversation
from perdure.regex import lazy_re
from perdure.text import one_line

MAX_CONVERSATIONS = 5  # in the layer
_MAX_REQUEST_CHARS = 100
_MAX_ANSWER_CHARS = 80
_MIN_REQUEST_LETTERS = 6  # "3", "ok" and "y" name nothing
_MIN_REQUEST_WORDS = 2
_FIELD_MARK = lazy_re(r"\[\[ ## \w+ ## \]\]")  # of a program's prompt template


def find_request(prompt: str) -> str:
    """Return what the person asked in a message, on one line; "" if the message names no request.

    >>> find_request("[[ ## user_query ## ]] Why does the build fail?"), find_request("3")
    ('Why does the build fail?', '')
    >>> find_request("<environment_context>\\n<cwd>/w</cwd>\\n</environment_context>")
    ''
    """
    text = _FIELD_MARK.sub(" ", prompt)
    if is_command(text) or is_machine_text(text):
        return ""
    typed_text = " ".join(part.text for part in split_typed_text(text) if part.kind == "text")
    request = one_line(typed_text, _MAX_REQUEST_CHARS)
    n_letters = sum(character.isalpha() for character in request)
    is_spaced = request.isascii()  # a script without spaces says much in one word
    has_words = len(request.split()) >= _MIN_REQUEST_WORDS or not is_spaced
    return request if has_words and n_letters >= (_MIN_REQUEST_LETTERS if is_spaced else 2) else ""


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
    return [request for prompt in prompts if (request := find_request(prompt))]
