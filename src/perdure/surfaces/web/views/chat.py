"""`/chat`: talk with the agent of this home, in sessions that the resident process holds.

A page shows what stands in the log of a session, and below it what goes on now; a form changes something and leads
back. So it can be read without a script, by several tabs, and after a restart.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.access.redact import mask
from perdure.agent.attachments import Attachments, make_file, make_image
from perdure.agent.definition import read_definition
from perdure.agent.image_size import IMAGE_TYPES, find_image_type
from perdure.agent.permission import MODE_MEANINGS, MODES, PermissionAnswer, PermissionRequest
from perdure.errors import ConfigFault, NotFound, PerdureError, ToolError, UsageError
from perdure.floor.platforms import WEB
from perdure.formats.perdure import FileEntry, ImageEntry, Start
from perdure.session.blocks import BlockFile
from perdure.session.catalog import list_sessions
from perdure.session.log import read_tree
from perdure.surfaces import recall_sources
from perdure.surfaces.chat.status_bar import list_pieces
from perdure.surfaces.cue_cards import CueCard, MissingCue
from perdure.surfaces.http import captures
from perdure.surfaces.live_sessions import LiveSession, TurnRequest, is_folder
from perdure.surfaces.web import conversation
from perdure.surfaces.web.conversation import Round
from perdure.surfaces.web.render import clean, to_key
from perdure.surfaces.web.visits import HtmlPage, RawContent, Redirect, View, ViewResult, Visit, resolve_key
from perdure.text import one_line

_MAX_SESSIONS = 100  # that the list shows
_SHOWN_ROUNDS = 30  # the newest; `all=1` shows all
_MAX_EXPLAINED = 10  # rounds whose recall is explained, the newest; the others have a link
_MAX_MESSAGE_CHARS = 400_000
_END_S = 1.0  # an answer is on the page a moment before its turn has ended
_MAX_IMAGES = 10
_TITLE_CHARS = 100
_ANSWERING = "an answer goes on in this session: wait for its end, or stop it"
_CHOICES = {"once": "once", "always": "always", "deny": "deny"}


@dataclass(frozen=True, slots=True)
class RecalledBeside:
    """What was recalled beside a message."""

    nonce: str
    n_cues: int
    cards: tuple[CueCard | MissingCue, ...]  # () where only the link is shown


# the list ---------------------------------------------------------------------------------------------------------


def show_chats(visit: Visit) -> HtmlPage:
    """Show the form that begins a session, and the sessions that can go on."""
    return _show_chats(visit)


def _show_chats(visit: Visit, *, error: str = "", typed: str = "") -> HtmlPage:
    listed = [item for item in list_sessions(visit.home) if not item.overview.is_subagent]
    values = {
        "title": "Chat",
        "sessions": [item.overview for item in listed[:_MAX_SESSIONS]],
        "n_more": max(0, len(listed) - _MAX_SESSIONS),
        "answering": {
            item.overview.session for item in listed[:_MAX_SESSIONS]
            if (live := visit.live.find(item.overview.session)) is not None and live.is_answering
        },
        "folders": [("", "no folder: the agent has no files, and recalls from everywhere"), *_list_folders(visit)],
        "error": error,
        "typed": clean(typed),
        "folder": visit.form.get("folder", ""),
    }  # fmt: skip
    return HtmlPage("chats.html", values, 400 if error else 200)


def _list_folders(visit: Visit) -> list[tuple[str, str]]:
    """Return (value, label) of the projects that are folders of this machine."""
    names = visit.home.runs.projects(is_own=True)
    return [(to_key(name), clean(mask(name))) for name in names if is_folder(name)]


def begin_chat(visit: Visit) -> ViewResult:
    """Begin a session with a message."""
    typed = visit.form.get("text", "")
    try:
        attachments = _read_attachments(visit)
        _check_message(visit, typed)
        folder = resolve_key(visit.form.get("folder", ""), lambda: visit.home.runs.projects(is_own=True))
        if folder and not is_folder(folder):
            raise UsageError("there is no such folder on the machine of this home")
        with visit.live.begin(WEB, cwd=folder) as live:
            live.start_turn(TurnRequest(typed, attachments))
    except (UsageError, ConfigFault) as error:
        return _show_chats(visit, error=_explain(error), typed=typed)
    return Redirect(f"/chat/{live.session}")


# one session ------------------------------------------------------------------------------------------------------


def show_chat(visit: Visit) -> HtmlPage:
    """Show a session: all of it, or the way to one of its entries."""
    return _show_chat(visit)


def _show_chat(visit: Visit, *, error: str = "", typed: str = "") -> HtmlPage:
    session = visit.path_params["session"]
    tree = read_tree(visit.home, session)
    at = visit.query.get("at", "") or visit.form.get("at", "")
    if at and tree.get(at) is None:
        raise NotFound(at)
    leaf = conversation.find_newest_leaf(tree, at) if at else tree.leaf
    rounds = conversation.list_rounds(tree, leaf)
    n_hidden = 0 if visit.query.get("all") == "1" else max(0, len(rounds) - _SHOWN_ROUNDS)
    rounds = rounds[n_hidden:]
    live = visit.live.find(session)
    is_newest = leaf == tree.leaf
    turn = live.turn if live is not None and is_newest else None
    start = next(iter(tree))
    editing = visit.query.get("edit", "")
    edited = next((one for one in rounds if one.message.id == editing), None)
    values = {
        "title": _find_title(visit, session, rounds),
        "session": session,
        "start": start if isinstance(start, Start) else None,
        "rounds": rounds,
        "recalled": _find_recalled(visit, session, rounds),
        "n_hidden": n_hidden,
        "turn": turn,
        "is_answering": turn is not None and not turn.ended.is_set(),
        "has_partial": turn is not None and not turn.ended.is_set() and not _is_shown(rounds, turn.text),
        "question": _describe_question(turn.question.subject) if turn is not None and turn.question else None,
        "question_id": turn.question.question_id if turn is not None and turn.question else "",
        "status": [text for _, text in list_pieces(live.status)] if live is not None and live.status else [],
        "at": at,
        "is_newest": is_newest,
        "after": "" if is_newest else leaf,
        "edited": edited,
        "modes": [(mode, f"{mode}: {MODE_MEANINGS[mode]}") for mode in MODES],
        "mode": _find_mode(visit, live),
        "error": error,
        "typed": clean(typed or (edited.message.text if edited else "")),
        "accept": ",".join(IMAGE_TYPES) + ",text/*",
    }
    return HtmlPage("chat.html", values, 400 if error else 200)


def _is_shown(rounds: Sequence[Round], partial: str) -> bool:
    """Return True if the answer that came last stands in the log already: its calls run, or wait for a person."""
    last = rounds[-1].last_answer if rounds else ""
    return bool(partial.strip()) and mask(partial).strip() == last.strip()


def _find_title(visit: Visit, session: str, rounds: Sequence[Round]) -> str:
    overview = next((item.overview for item in list_sessions(visit.home) if item.overview.session == session), None)
    title = overview.title if overview else ""
    return one_line(title or (rounds[0].text if rounds else ""), _TITLE_CHARS) or "A session without words"


def _find_mode(visit: Visit, live: LiveSession | None) -> str:
    if live is not None and live.status is not None:
        return live.mode
    with contextlib.suppress(PerdureError):
        return read_definition(visit.home).mode
    return "ask"


def _find_recalled(visit: Visit, session: str, rounds: Sequence[Round]) -> dict[str, RecalledBeside]:
    """Map messages to what was recalled beside them; the index may be a moment behind."""
    texts = BlockFile(visit.home.path, session, is_kept=True).read()
    recalled: dict[str, RecalledBeside] = {}
    for n, one in enumerate(reversed(rounds)):
        nonce = conversation.find_nonce(texts.get(one.message.id, ""))
        if not nonce:
            continue
        with contextlib.suppress(NotFound):
            injection = visit.home.memories.injections.get(nonce)
            is_explained = n < _MAX_EXPLAINED
            cards = recall_sources.read_injection(visit.home, injection, one.text).cards if is_explained else ()
            recalled[one.message.id] = RecalledBeside(nonce, len(injection.reasons), tuple(cards))
    return recalled


def _describe_question(subject: Any) -> dict[str, Any]:
    """Return a question as the page asks it."""
    if not isinstance(subject, PermissionRequest):
        return {"kind": "question", "text": clean(subject.question), "choices": [clean(one) for one in subject.choices]}
    return {
        "kind": "permission",
        "name": subject.call.name,
        "rows": conversation.list_request_rows(subject),
        "shown": subject.change.shown if subject.change else "",
        "is_new": subject.change is not None and subject.change.old is None,
        "inputs": [] if subject.change else conversation.list_request_inputs(subject.call),
        "reason": subject.reason,
        "always_scope": subject.always_scope,
    }


def send_image(visit: Visit) -> RawContent:
    """Send an image of an entry."""
    n = visit.path_params["n"]
    tree = read_tree(visit.home, visit.path_params["session"])
    image = conversation.find_image(tree, visit.path_params["entry"], int(n)) if n.isdecimal() and len(n) < 4 else None
    if image is None or image.media_type not in IMAGE_TYPES:
        raise NotFound
    headers = {"Content-Security-Policy": "default-src 'none'; sandbox", "Cache-Control": "no-store"}
    return RawContent(base64.b64decode(image.data), image.media_type, headers)


# changes ----------------------------------------------------------------------------------------------------------


def say(visit: Visit) -> ViewResult:
    """Send a message; after an entry that is not the newest it begins a branch."""
    typed, session = visit.form.get("text", ""), visit.path_params["session"]
    try:
        attachments = _read_attachments(visit)
        _check_message(visit, typed)
        request = TurnRequest(typed, attachments, after=visit.form.get("after", ""))
        with visit.live.resume(visit.home, session, WEB) as live:
            live.wait_for_end(_END_S)
            if live.start_turn(request) is None:
                raise UsageError(_ANSWERING)
    except (UsageError, ConfigFault) as error:
        return _show_chat(visit, error=_explain(error), typed=typed)
    return Redirect(f"/chat/{session}")


def _check_message(visit: Visit, typed: str) -> None:
    """Raise UsageError for a message that cannot be sent. What is kept nowhere, the page could not show."""
    if visit.home.captures.current_pause():
        raise UsageError("capture is paused, so that nothing would be kept: `perdure resume` ends the pause")
    if not typed.strip():
        raise UsageError("write a message first")
    if len(typed) > _MAX_MESSAGE_CHARS:
        raise UsageError(f"a message has at most {_MAX_MESSAGE_CHARS:,} characters; attach a long text as a file")


def _explain(error: PerdureError) -> str:
    """Return why something was refused; an error of settings as its own text, which says what to do."""
    return (error.detail or str(error)) if isinstance(error, UsageError) else str(error)


def _read_attachments(visit: Visit) -> Attachments:
    """Return the files of a form. Raises UsageError for one that cannot go along: nothing is left out silently."""
    files: list[FileEntry] = []
    images: list[ImageEntry] = []
    for upload in visit.files:
        try:
            if find_image_type(upload.data):
                images.append(make_image(clean(upload.name), upload.data))
            else:
                files.append(make_file(clean(upload.name), upload.data))
        except ToolError as error:
            raise UsageError(error.detail) from error
    if len(images) > _MAX_IMAGES:
        raise UsageError(f"a message has at most {_MAX_IMAGES} images")
    return Attachments(tuple(files), tuple(images))


def stop(visit: Visit) -> Redirect:
    """Stop the answer that goes on; it is kept as far as it came."""
    session = visit.path_params["session"]
    live = visit.live.find(session)
    if live is not None and live.is_answering:
        live.stop()
        live.wait_for_end()
    return Redirect(f"/chat/{session}")


def answer_question(visit: Visit) -> Redirect:
    """Answer a question of the agent: about a permission, or of the model's own."""
    session, form = visit.path_params["session"], visit.form
    live = visit.live.find(session)
    pending = live.turn.question if live is not None and live.turn is not None else None
    if live is None or pending is None or pending.question_id != form.get("question"):
        return Redirect(f"/chat/{session}", "This question does not wait any more: it was answered, or the turn ended.")
    words = form.get("words", "").strip()
    if isinstance(pending.subject, PermissionRequest):
        choice = form.get("choice", "")
        if choice not in _CHOICES:
            raise UsageError(f"choice {choice!r} (known: once, always, deny)")
        answer: Any = PermissionAnswer(_CHOICES[choice], words)  # type: ignore[arg-type]
    else:
        answer = form.get("choice", "") or words or None
    live.answer(pending.question_id, answer)
    return Redirect(f"/chat/{session}")


def set_mode(visit: Visit) -> Redirect:
    """Let tools do more or less from here on, until the session is given up."""
    session, wanted = visit.path_params["session"], visit.form.get("mode", "")
    mode = next((mode for mode in MODES if mode == wanted), None)
    if mode is None:
        raise UsageError(f"mode {wanted!r} (known: {', '.join(MODES)})")
    with visit.live.resume(visit.home, session, WEB) as live:
        live.set_mode(mode)
    return Redirect(f"/chat/{session}", f"Mode {mode}: {MODE_MEANINGS[mode]}.")


def use_model(visit: Visit) -> ViewResult:
    """Let another model answer from here on, until the session is given up."""
    model = visit.form.get("model", "").strip()
    if not model:
        return _show_chat(visit, error="write a role (`helper`), or a model at the provider of the resident")
    return _change_session(visit, lambda live: live.use_model(model), f"{model} answers from here on.")


def set_title(visit: Visit) -> ViewResult:
    """Give the session a title, instead of its first message."""
    title = one_line(visit.form.get("title", ""), _TITLE_CHARS)
    if not title:
        return _show_chat(visit, error="write a title first")
    return _change_session(visit, lambda live: live.set_title(title), "The conversation has its title.")


def compact(visit: Visit) -> ViewResult:
    """Let a summary stand for the middle of the session; it can be stopped like an answer."""
    request = TurnRequest(visit.form.get("focus", "").strip(), is_compaction=True)
    return _change_session(visit, lambda live: live.start_turn(request) is not None)


def _change_session(visit: Visit, work: Callable[[LiveSession], bool], notice: str = "") -> ViewResult:
    """Do something with a session. work: returns False while an answer goes on."""
    session = visit.path_params["session"]
    try:
        with visit.live.resume(visit.home, session, WEB) as live:
            live.wait_for_end(_END_S)
            if not work(live):
                raise UsageError(_ANSWERING)
    except (UsageError, ConfigFault) as error:
        return _show_chat(visit, error=_explain(error))
    return Redirect(f"/chat/{session}", notice)


_BIG = captures.MAX_BYTES  # files come with the form

VIEWS: tuple[View, ...] = (
    View("GET", "/chat", show_chats, nav="chat", pool="chat", is_own=True),
    View("POST", "/chat", begin_chat, nav="chat", pool="chat", is_own=True, max_bytes=_BIG),
    View("GET", "/chat/{session}", show_chat, nav="chat", pool="chat", is_own=True),
    View("GET", "/chat/{session}/images/{entry}/{n}", send_image, nav="chat", is_own=True),
    View("POST", "/chat/{session}/say", say, nav="chat", pool="chat", is_own=True, max_bytes=_BIG),
    View("POST", "/chat/{session}/stop", stop, nav="chat", pool="chat", is_own=True),
    View("POST", "/chat/{session}/answer", answer_question, nav="chat", pool="chat", is_own=True),
    View("POST", "/chat/{session}/mode", set_mode, nav="chat", pool="chat", is_own=True),
    View("POST", "/chat/{session}/model", use_model, nav="chat", pool="chat", is_own=True),
    View("POST", "/chat/{session}/title", set_title, nav="chat", pool="chat", is_own=True),
    View("POST", "/chat/{session}/compact", compact, nav="chat", pool="chat", is_own=True),
)
