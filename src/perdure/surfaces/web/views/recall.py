"""`/recall`, `/recall/try`, `/context` and `/use`: what was injected beside messages, and what was used.

Trying a recall or a context records nothing. `/use` also shows what follows from use (row E05).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, NamedTuple
from urllib.parse import urlencode

from perdure import log, text, turn
from perdure.access import fence
from perdure.access.redact import mask
from perdure.archive.memory_events import RIGHT, WRONG
from perdure.context import Context, ContextPart
from perdure.environ import LOCAL_ZONE
from perdure.errors import UsageError
from perdure.index import encoding
from perdure.index.injections import Injection, UsageWeek
from perdure.index.memory_rows import MemoryUse
from perdure.index.session_turns import PromptTurn
from perdure.memories.cue_use import USED_SCORE, compute_expected_share
from perdure.memories.proposals import MAX_UNUSED_SHOWN
from perdure.recall.tuning import DEFAULT
from perdure.surfaces import cue_cards, recall_sources, shadow_review, units
from perdure.surfaces.cue_cards import Omission, OmissionContext
from perdure.surfaces.recall_sources import InjectionMoment, PromptMessage
from perdure.surfaces.web import visits
from perdure.surfaces.web.render import clean, to_key
from perdure.surfaces.web.visits import HtmlPage, Redirect, View, Visit, parse_page_count
from perdure.types import Recalled

_PAGE_INJECTIONS = 20
_MAX_SILENT = 60  # shown messages without an injection
_LOG_BYTES = 600_000  # of the log that are searched for them: about two thousand answers
_TITLE_CHARS = 120  # of a message in the title of its page
_MAX_CANDIDATES = 12  # left-out candidates that are shown
_SILENT_OUTCOMES = ("silent", "skipped", "late", "failed")  # outcomes without an injection


@dataclass(frozen=True, slots=True)
class InjectionRow:
    """One injection in the list."""

    one: Injection
    asked: PromptTurn | None
    outcome: str
    is_used: bool
    n_wrong: int  # cues that a person marked as wrong


class SilentMessage(NamedTuple):
    """A message beside which nothing was injected."""

    at: datetime
    runtime: str
    session: str
    outcome: str
    why: str
    took_ms: float
    asked: PromptTurn | None


# injections ----------------------------------------------------------------------------------------------------


def show_injections(visit: Visit) -> HtmlPage:
    """List the newest injections, page by page; of one session, or those that contain one turn or memory."""
    chosen = {name: visit.query.get(name, "") for name in ("session", "cue")}
    n = _PAGE_INJECTIONS * parse_page_count(visit.query)
    injections = visit.home.memories.injections.list_newest(**chosen, before=visit.query.get("before", ""), limit=n + 1)
    rows = to_injection_rows(visit, injections[:n])
    values = {
        "title": "Recall",
        "rows": rows,
        "more": _to_next_url(rows, chosen) if len(injections) > n else "",
        **chosen,
        "is_first": "before" not in visit.query,
        "about": _describe_cue(visit, chosen["cue"]),
    }
    return HtmlPage("recall.html", values)


def to_injection_rows(visit: Visit, injections: Sequence[Injection]) -> list[InjectionRow]:
    """Return injections as a list shows them."""
    message_by_moment = recall_sources.find_messages(visit.home, map(recall_sources.to_moment, injections))
    oldest_at = min((injection.at for injection in injections), default=visit.now)
    labelled_nonces = Counter(nonce for nonce, _ in visit.home.memories.labels(oldest_at))
    return [
        InjectionRow(
            injection,
            message_by_moment.get(recall_sources.to_moment(injection)),
            cue_cards.describe_outcome(injection),
            bool(injection.used),
            labelled_nonces[injection.nonce],
        )
        for injection in injections
    ]


def _to_next_url(rows: Sequence[InjectionRow], chosen: Mapping[str, str]) -> str:
    """Return the address of the next page."""
    params = {name: value for name, value in chosen.items() if value}
    return "/recall?" + urlencode({**params, "before": rows[-1].one.nonce})


def _describe_cue(visit: Visit, cue: str) -> str:
    """Return the words of the turn or memory that is asked about."""
    if not cue:
        return ""
    subjects = recall_sources.to_subjects(recall_sources.read_sources(visit.home, [cue]))
    return mask(subjects[cue].text) if cue in subjects else "(deleted)"


# silent messages -------------------------------------------------------------------------------------------------


def show_silent(visit: Visit) -> HtmlPage:
    """List the newest messages beside which nothing was injected, and why, as far back as the log goes."""
    lines = log.read_newest_entries(visit.server.home, entry_type="answered", n_bytes=_LOG_BYTES)
    own_lines = [line for line in lines if _is_silence(line, visit.home.user)][:_MAX_SILENT]
    message_by_moment = recall_sources.find_messages(visit.home, map(_to_moment, own_lines))
    return HtmlPage(
        "silent.html",
        {"title": "Recall", "silences": [_to_silent_message(line, message_by_moment) for line in own_lines]},
    )


def _is_silence(line: Mapping[str, Any], user: str) -> bool:
    """Return True if a log line is about a message of this user without a recall; a floor may have been given."""
    is_silent = line.get("outcome") in _SILENT_OUTCOMES or "why" in line
    return line.get("user") == user and line.get("kind") == "prompt" and is_silent


def _to_moment(line: Mapping[str, Any]) -> InjectionMoment:
    return InjectionMoment(str(line["client"]), str(line["session"]), "", datetime.fromisoformat(line["at"]))


def _to_silent_message(
    line: Mapping[str, Any], message_by_moment: Mapping[InjectionMoment, PromptTurn]
) -> SilentMessage:
    moment = _to_moment(line)
    reason = str(line.get("why") or {"late": "it took too long", "failed": "it failed"}.get(line["outcome"], ""))
    outcome = line["outcome"] if line["outcome"] in _SILENT_OUTCOMES else "silent; the floor was sent"
    return SilentMessage(
        moment.at,
        moment.runtime,
        moment.session,
        outcome,
        reason,
        float(line.get("took_ms", 0)),
        message_by_moment.get(moment),
    )


# recorded in shadow ----------------------------------------------------------------------------------------------


def show_shadow(visit: Visit) -> HtmlPage:
    """Show the blocks that were recorded in shadow, each beside its message: first those without an answer."""
    blocks = visit.home.memories.list_shadow_blocks()
    counts = Counter(block.label for block in blocks)
    newest_first = sorted(blocks, key=lambda block: (not block.label, block.injection.at), reverse=True)
    values = {
        "title": "Recall",
        "blocks": shadow_review.read_blocks(visit.home, newest_first[:_PAGE_INJECTIONS]),
        "n_recorded": len(blocks),
        "recording": units.describe_recording(len(blocks)).partition(";")[0],
        "n_yes": counts[RIGHT],
        "n_no": counts[WRONG],
    }
    return HtmlPage("shadow.html", values)


def answer_block(visit: Visit) -> Redirect:
    """Keep whether a block that was recorded in shadow belongs to its message, or take that back."""
    answer = visit.form.get("answer", "")
    if answer not in shadow_review.LABELS:
        raise UsageError(f"answer {answer!r} (known: yes, no, or nothing to take it back)")
    visit.home.memories.label_block(visit.path_params["nonce"], shadow_review.LABELS[answer])
    return Redirect("/recall/shadow", f"Kept: {answer}." if answer else "The answer was taken back.")


# one injection --------------------------------------------------------------------------------------------------


def show_injection(visit: Visit) -> HtmlPage:
    """Show one injection: the block, each cue and what became of it; and, on request, what was passed over."""
    injection = visit.home.memories.injections.get(visit.path_params["nonce"])
    prompt = recall_sources.find_messages(visit.home, [recall_sources.to_moment(injection)]).get(
        recall_sources.to_moment(injection)
    )
    message = recall_sources.read_message(visit.home, prompt.turn_id) if prompt else recall_sources.PromptMessage()
    injection_view = recall_sources.read_injection(visit.home, injection, message.text)
    block, is_exact = recall_sources.restore_block(visit.home, injection_view, prompt.turn_id if prompt else "")
    why_not = visit.query.get("why_not", "").strip()
    values = {
        "title": text.one_line(message.text, _TITLE_CHARS) or "Recalls",
        "one": injection,
        "asked": prompt,
        "message": message.text,
        "is_long": len(message.text) > _TITLE_CHARS,
        "cards": injection_view.cards,
        "block": block,
        "is_exact": is_exact,
        "steps": cue_cards.make_step_bars(injection.timings_ms),
        "outcome": cue_cards.describe_outcome(injection),
        "wanted": why_not,
        "used_from": USED_SCORE,
        "wrong_cues": {cue for nonce, cue in visit.home.memories.labels(injection.at) if nonce == injection.nonce},
        "again": None,
        "lacked": [],
        "passed_over": [],
    }
    if message.text and (why_not or "again" in visit.query):
        values |= _recall_again(visit, injection, message)
    return HtmlPage("injection.html", values)


def _recall_again(visit: Visit, injection: Injection, message: PromptMessage) -> dict[str, Any]:
    """Recall the same message once more, as of now, and explain what is left out."""
    recalled = visit.home.recall(
        message.text,
        now=visit.now.astimezone(LOCAL_ZONE),
        cwd=message.project,
        session=message.session,
        explain=True,
        mode=choose_mode(visit),
    )
    why_not = visit.query.get("why_not", "").strip()
    return {
        "again": recalled,
        **collect_passed_over(visit, recalled),
        "lacked": _explain_omissions(visit, injection, why_not, recalled, message.project),
    }


def _explain_omissions(
    visit: Visit, injection: Injection, why_not: str, recalled: Recalled, project: str | None
) -> list[Omission]:
    """Explain why the turns or memories meant by some words or an id were left out of this injection."""
    subjects = recall_sources.find_subjects(visit.home, why_not) if why_not else {}
    names = [reason.cue for reason in injection.reasons]
    omissions = []
    for name, subject in subjects.items():
        if name in names:
            explanation = f"It was recalled here, as cue {names.index(name) + 1}."
        else:
            explanation = cue_cards.explain_omission(
                subject, recalled, OmissionContext(_find_earlier(visit, injection, name), project)
            )
        omissions.append(Omission(name, mask(subject.text), explanation))
    return omissions or ([cue_cards.explain_unknown(why_not)] if why_not else [])


def _find_earlier(visit: Visit, injection: Injection, name: str) -> str:
    """Say when the session had received something before; "" if it had not."""
    if not injection.session:
        return ""
    earlier = visit.home.memories.injections.list_newest(
        session=injection.session, cue=name, before=injection.nonce, limit=1
    )
    return f"at {units.format_zoned_time(earlier[0].at)}" if earlier else ""


def choose_mode(visit: Visit) -> str | None:
    """Return the recall mode: by words alone until the model is loaded, so that nobody waits for it."""
    return None if visit.server.is_warm() else "keyword"


def collect_passed_over(visit: Visit, recalled: Recalled) -> dict[str, Any]:
    """Return the best candidates that were left out with their reasons, and their total number."""
    names = list(recalled.passed_over)[: 2 * _MAX_CANDIDATES]
    subjects = recall_sources.to_subjects(recall_sources.read_sources(visit.home, names))
    return {
        "passed_over": cue_cards.list_passed_over(recalled, subjects, limit=_MAX_CANDIDATES),
        "n_passed_over": len(recalled.passed_over),
    }


def label_cue(visit: Visit) -> Redirect:
    """Keep that a cue did not belong beside its message, or take that back."""
    nonce, label = visit.path_params["nonce"], visit.form.get("label", "")
    if label not in ("", WRONG):
        raise UsageError(f"label {label!r} (known: {WRONG}, or nothing to take it back)")
    visit.home.memories.label_cue(nonce, visit.form.get("cue", ""), label)
    return Redirect(f"/recall/{nonce}", "Marked as wrong for this message." if label else "The mark was taken back.")


RECALL_VIEWS: tuple[View, ...] = (
    View("GET", "/recall", show_injections, nav="recall"),
    View("GET", "/recall/silent", show_silent, nav="recall"),
    View("GET", "/recall/shadow", show_shadow, nav="recall"),
    View("POST", "/recall/shadow/{nonce}", answer_block, nav="recall", pool="write"),
    View("GET", "/recall/{nonce}", show_injection, nav="recall"),
    View("POST", "/recall/{nonce}/label", label_cue, nav="recall", pool="write"),
)


def try_recall(visit: Visit) -> HtmlPage:
    """Recall for a message as a model would, with the candidates passed over; `of` takes the message of a turn."""
    message = _read_message(visit)
    why_not = visit.query.get("why_not", "").strip()
    values: dict[str, Any] = {
        "title": "Try recall",
        "message": clean(message.text),
        "project": to_key(message.project or ""),
        "found": None,
        "error": "",
        "choices": _list_projects(visit, message.project),
        "of": visit.query.get("of", ""),
        "wanted": why_not,
        "as_of": visit.query.get("as_of", "").strip(),
        "budget": DEFAULT.max_tokens,
    }
    try:
        as_of = units.parse_moment(values["as_of"] or None, now=visit.now)
    except UsageError as error:
        return HtmlPage("try.html", {**values, "error": str(error)}, 400)
    if message.text.strip():
        values |= _run_recall(visit, message, as_of)
    return HtmlPage("try.html", values)


def _read_message(visit: Visit) -> PromptMessage:
    """Return the message: the given one, or that of a turn, asked in its session now. Raises NotFound."""
    if turn := visit.query.get("of", ""):
        return recall_sources.read_message(visit.home, turn)
    return PromptMessage(visit.query.get("message", ""), _parse_project(visit))


def _parse_project(visit: Visit) -> str | None:
    """Return the project that an address means, of those in which the visitor may read anything."""
    return visits.resolve_key(visit.query.get("project", ""), visit.home.runs.projects) or None


def _list_projects(visit: Visit, project: str | None) -> list[tuple[str, str]]:
    """Return the visitor's projects and the chosen one."""
    paths = {path for path in (*visit.home.runs.projects(is_own=True), project) if path}
    return [("", "everywhere"), *visits.to_options(sorted(paths))]


def _run_recall(visit: Visit, message: PromptMessage, as_of: datetime | None) -> dict[str, Any]:
    recalled = visit.home.recall(
        message.text,
        now=visit.now.astimezone(LOCAL_ZONE),
        cwd=message.project,
        session=message.session,
        as_of=as_of,
        explain=True,
        mode=choose_mode(visit),
    )
    block, injected_cues = turn.render_block(recalled.cues, fence.make_nonce()) if recalled.cues else ("", ())
    return {
        "found": recalled,
        "block": block,
        "cards": recall_sources.make_cards(visit.home, recalled, injected_cues),
        "n_tokens": sum(cue.n_tokens for cue in injected_cues),
        "steps": cue_cards.make_step_bars(recalled.timings_ms),
        "took_ms": sum(recalled.timings_ms.values()),
        "lacked": _explain_trial_omissions(visit, recalled, message.project),
        **collect_passed_over(visit, recalled),
    }


def _explain_trial_omissions(visit: Visit, recalled: Recalled, project: str | None) -> list[Omission]:
    """Explain why the turns or memories asked about are not recalled."""
    if not (why_not := visit.query.get("why_not", "").strip()):
        return []
    omission_context = OmissionContext(project=project)
    subjects = recall_sources.find_subjects(visit.home, why_not)
    omissions = [
        Omission(name, mask(subject.text), cue_cards.explain_omission(subject, recalled, omission_context))
        for name, subject in subjects.items()
    ]
    return omissions or [cue_cards.explain_unknown(why_not)]


# the whole context ----------------------------------------------------------------------------------------------


def show_context(visit: Visit) -> HtmlPage:
    """Show everything that a model would read for a message, part by part, with the cost of each."""
    message, project = visit.query.get("message", ""), _parse_project(visit)
    values: dict[str, Any] = {
        "title": "Context",
        "message": clean(message),
        "project": to_key(project or ""),
        "choices": _list_projects(visit, project),
        "made": None,
    }
    if message.strip():
        full_context = visit.home.context(
            message, cwd=project, now=visit.now.astimezone(LOCAL_ZONE), mode=choose_mode(visit)
        )
        values |= _split_context(full_context)
    return HtmlPage("context.html", values)


def _split_context(full_context: Context) -> dict[str, Any]:
    """Return the parts on both sides of the line up to which a provider caches them."""
    cached_parts = [part for part in full_context.parts if part.is_cacheable]
    fresh_parts = [part for part in full_context.parts if not part.is_cacheable]
    return {
        "made": full_context,
        "sides": ((True, cached_parts, _sum_tokens(cached_parts)), (False, fresh_parts, _sum_tokens(fresh_parts))),
        "bars": cue_cards.make_step_bars({part.name: float(part.n_tokens) for part in full_context.parts}),
    }


def _sum_tokens(parts: list[ContextPart]) -> int:
    return sum(part.n_tokens for part in parts)


TRY_VIEWS: tuple[View, ...] = (
    View("GET", "/recall/try", try_recall, nav="recall"),
    View("GET", "/context", show_context, nav="recall"),
)


_RECENT_WEEKS = 4  # weeks, compared with as many before them
_MAX_USE_MEMORIES = 15  # memories of each list


@dataclass(frozen=True, slots=True)
class UseTotals:
    """The sums of some weeks."""

    n_cues: int
    n_used: int

    @property
    def share(self) -> float | None:
        """The share of the injected cues that was used; None if none was injected."""
        return self.n_used / self.n_cues if self.n_cues else None


def show_use(visit: Visit) -> HtmlPage:
    """Show what was injected and what was used, by week, and the most and the never used memories."""
    mondays = encoding.list_mondays(visit.now.date())
    known_weeks = visit.home.memories.injections.count_by_week(since_at=encoding.get_day_start(mondays[0]))
    all_weeks = fill_use_weeks(known_weeks, mondays)
    uses = visit.home.memories.uses()
    current = [memory_use for memory_use in uses if memory_use.is_current]
    values = {
        "title": "Use of memories",
        "weeks": all_weeks,
        "is_known": bool(known_weeks),
        "most": max(week.n_cues for week in all_weeks),
        "recent": sum_weeks(all_weeks[-_RECENT_WEEKS:]),
        "before": sum_weeks(all_weeks[-2 * _RECENT_WEEKS : -_RECENT_WEEKS]),
        "n_waiting": sum(week.n_waiting for week in all_weeks),
        "n_memories": len(current),
        "n_weeks": _RECENT_WEEKS,
        "never_used": MAX_UNUSED_SHOWN,
        **_collect_use_lists(visit, list_useful(current), list_unused(current)),
    }
    return HtmlPage("use.html", values)


def fill_use_weeks(known_weeks: Sequence[UsageWeek], mondays: Sequence[date]) -> list[UsageWeek]:
    """Return the weeks of these Mondays, including those without injections."""
    week_by_monday = {week.begins_on: week for week in known_weeks}
    return [week_by_monday.get(day) or UsageWeek(day, 0, 0, 0, 0, 0, 0) for day in mondays]


def sum_weeks(some_weeks: Sequence[UsageWeek]) -> UseTotals:
    """Sum up some weeks."""
    return UseTotals(sum(week.n_cues for week in some_weeks), sum(week.n_used for week in some_weeks))


def list_useful(uses: Iterable[MemoryUse]) -> list[MemoryUse]:
    """Return the used memories, most useful first: by the expected share of use at the next injection."""
    used = (memory_use for memory_use in uses if memory_use.n_used)
    return sorted(
        used,
        key=lambda memory_use: (
            -compute_expected_share(memory_use.n_injected, memory_use.n_used),
            -memory_use.n_used,
            memory_use.memory_id,
        ),
    )


def list_unused(uses: Iterable[MemoryUse]) -> list[MemoryUse]:
    """Return the memories that were injected and never used, the most often injected first."""
    unused = (memory_use for memory_use in uses if memory_use.n_injected and not memory_use.n_used)
    return sorted(unused, key=lambda memory_use: (-memory_use.n_injected, memory_use.memory_id))


def _collect_use_lists(visit: Visit, used: Sequence[MemoryUse], unused: Sequence[MemoryUse]) -> dict[str, Any]:
    of_ids = visit.home.memories.get_many
    return {
        "useful": of_ids([memory_use.memory_id for memory_use in used[:_MAX_USE_MEMORIES]]),
        "n_useful": len(used),
        "vain": of_ids([memory_use.memory_id for memory_use in unused[:_MAX_USE_MEMORIES]]),
        "n_vain": len(unused),
        "n_due": sum(memory_use.n_injected >= MAX_UNUSED_SHOWN and not memory_use.pinned for memory_use in unused),
    }


USE_VIEWS: tuple[View, ...] = (View("GET", "/use", show_use, nav="recall"),)
