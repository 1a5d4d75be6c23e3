"""Choose the fact that is told before or after a tool call: one, or none. Pure, over a source of facts.

Before a command: it failed when it was last run in this form, and another form of it worked then. After a command has
failed: what made the same failure go away last time. Before a file is read or changed: the newest decision about it.
Before a command uses what a person refused: what the person said.
In doubt nothing is told: most calls deserve silence.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from perdure.formats.action_facts import (
    EDIT_KINDS,
    build_path_key,
    find_failed_form,
    list_choice_keys,
    list_command_keys,
    list_form_keys,
    read_failure,
)
from perdure.formats.command_form import VOLATILE, CommandForm, read_outcomes
from perdure.index.facts import FactRecord
from perdure.regex import lazy_re

MAX_BLOCK_BYTES = 400  # of all that is told at one call
_N_AFTER = 24  # facts after a failure among which its mend is looked for
_N_FAILURES = 6  # newest failures that are looked at
_MAX_SAME = 3  # calls of the same program between a failure and the form that worked
_MIN_SHARED = 0.5  # share of the words that a form that worked shares with the one that failed
_MAX_FILES = 3  # edited files that are named
_MAX_TERMS = 24  # of a command that may have been refused
_FILE_KINDS = (*EDIT_KINDS, "read")

_TRANSIENT = lazy_re(  # errors that another form of the command does not mend
    r"HTTP [45]\d\d|credential|authenticat|unauthori[sz]ed|rate limit|timed? ?out|ECONN|ENOTFOUND"
    r"|connection (?:refused|reset)"
    r"|could not resolve host|network|temporar|already running|lock(?:ed| file)",
    re.I,
)
_FORCING = lazy_re(r"-f|--force\S*|--no-verify|--hard|--dangerously\S*|--allow-\S+|--break-\S+|--skip-\S+|--ignore-\S+")

MendKind = Literal["form", "after", "edit", "path"]


class FactSource(Protocol):
    """Where facts come from."""

    def find(self, keys: Sequence[str]) -> list[FactRecord]:
        """Return the facts under these keys, newest first; each once, with the first of the keys."""
        ...

    def list_after(self, record: FactRecord, limit: int) -> list[FactRecord]:
        """Return the facts that follow one in its thread, in order."""
        ...


@dataclass(frozen=True, slots=True)
class ActionCall:
    """A call of a tool, before it runs or after it failed."""

    kind: str  # run, edit, write, patch or read
    command: str = ""
    files: tuple[str, ...] = ()  # relative to the project
    error: str | None = None  # the output of a call that failed; None before the call


@dataclass(frozen=True, slots=True)
class Mend:
    """What ended a failure."""

    kind: MendKind  # another form of the command; the same one after another command or after edits; another path
    texts: tuple[str, ...]  # the command, or paths of files
    record: FactRecord


@dataclass(frozen=True, slots=True)
class ActionFact:
    """One fact to tell."""

    texts: tuple[str, ...]  # the same fact in fewer and fewer words
    sources: tuple[tuple[str, int], ...]  # (turn id, number of the fact in that turn) behind it, the first one first
    kind: str  # form, after, edit, path, decided or chose
    by_agent: bool = False  # an agent decided it: such facts are many in an old home, and least worth

    @property
    def name(self) -> str:
        """The identity of the fact: a session is told it once."""
        return " ".join((self.kind, *(f"{turn_id}/{n}" for turn_id, n in self.sources)))

    @property
    def turn_ids(self) -> tuple[str, ...]:
        """The turns behind it."""
        return tuple(turn_id for turn_id, _ in self.sources)


def choose_fact(
    call: ActionCall, source: FactSource, told: frozenset[str] = frozenset(), *, with_agents: bool = True
) -> ActionFact | None:
    """Return what to tell at a call, or None.

    told: names of facts that the session was told already. with_agents: also what an agent decided.
    """
    if call.kind == "run":
        facts = (
            _list_failure_facts(call, source)
            if call.error is not None
            else [*_list_form_facts(call, source), *_list_choices(call, source)]
        )
    elif call.kind in _FILE_KINDS and call.error is None:
        facts = [*_list_path_facts(call, source), *_list_decisions(call, source)]
    else:
        facts = []
    return next((fact for fact in facts if fact.name not in told and (with_agents or not fact.by_agent)), None)


# commands -----------------------------------------------------------------------------------------------------


def _list_form_facts(call: ActionCall, source: FactSource) -> list[ActionFact]:
    """Return, for each command of a line that failed when it last ran in this form, the form that then worked."""
    facts = []
    for form, keys in list_command_keys(call.command):
        records = source.find(keys)
        failure = next((record for record in records if record.kind in ("failed", "missing")), None)
        if failure is None or _has_worked_since(failure, records):
            continue
        mend = find_mend(failure, source.list_after(failure, _N_AFTER))
        if mend and mend.kind in ("form", "path") and _read_form(mend.texts[0]).whole != form.whole:
            facts.append(_describe_mend(failure, mend))
    return facts


def _list_path_facts(call: ActionCall, source: FactSource) -> list[ActionFact]:
    """Return, for each file that was missing when it was last asked for, the path where it then was."""
    facts = []
    for path in call.files:
        records = source.find([build_path_key(path)])
        if records and records[0].kind == "missing":
            mend = find_mend(records[0], source.list_after(records[0], _N_AFTER))
            facts += [_describe_mend(records[0], mend)] if mend else []
    return facts


def _list_failure_facts(call: ActionCall, source: FactSource) -> list[ActionFact]:
    """Return what ended earlier failures like this one, newest first."""
    failed_form = find_failed_form(read_outcomes(call.command), call.error or "")
    if failed_form is None or failed_form.is_probe:
        return []
    failure_now = read_failure(failed_form, call.error or "")
    is_whole = failure_now.keys[0].startswith("whole ")
    keys = failure_now.keys[1:] if is_whole else failure_now.keys  # the same command may fail for many reasons
    failures = [record for record in source.find(keys) if record.kind == "failed"][:_N_FAILURES]
    facts = []
    for failure in failures:
        mend = find_mend(failure, source.list_after(failure, _N_AFTER))
        if mend and not (mend.kind == "form" and _read_form(mend.texts[0]).whole == failed_form.whole):
            is_same = _read_form(failure.text).whole == failed_form.whole
            if is_same or mend.kind == "form":
                facts.append(_describe_mend(failure, mend))
    return facts


def _has_worked_since(failure: FactRecord, records: Sequence[FactRecord]) -> bool:
    """Return True if the part of the command that failed has worked since. records: newest first."""
    newer = records[: records.index(failure)]
    return any(
        record.kind in ("opened", "edited")
        or (record.kind == "worked" and failure.key in list_form_keys(_read_form(record.text)))
        for record in newer
    )


def find_mend(failure: FactRecord, following: Sequence[FactRecord]) -> Mend | None:
    """Return what ended a failure, from the facts that follow it in its thread; None if nothing clearly did.

    Commands of another program end the search for another form: they belong to other work.
    """
    if failure.kind == "missing":
        return _find_path(failure, following)
    failed = _read_form(failure.text)
    edits: list[str] = []
    others: list[str] = []
    looked_up: list[tuple[str, ...]] = []  # subcommands whose help was read since
    n_same = 0
    for record in following:
        if record.kind == "edited":
            edits.append(record.text)
        if record.kind not in ("worked", "failed"):
            continue
        form = _read_form(record.text)
        if form.program != failed.program:
            others.append(record.text)
            continue
        n_same += 1
        if form.whole == failed.whole:
            if record.kind == "failed":
                return None  # the newest failure of a row is the one to ask about
            return _choose_same_mend(record, edits, others)
        if form.is_help:
            looked_up.append(form.verbs)
        elif record.kind == "worked" and not others and n_same <= _MAX_SAME:
            if _TRANSIENT.search(failure.detail) or _is_forced(failed, form, record.text):
                return None
            was_looked_up = failure.key.startswith("verb ") and form.verbs in looked_up and form.verbs != failed.verbs
            if was_looked_up or is_other_form(failed, form, failure.key):
                return Mend("form", (record.text,), record)
    return None


def _find_path(missing: FactRecord, following: Sequence[FactRecord]) -> Mend | None:
    """Return the path at which a missing file was found: the first of that name that was read or changed soon after."""
    name = missing.text.rpartition("/")[2]
    for record in following[:_MAX_SAME]:
        if record.kind in ("opened", "edited") and record.text.rpartition("/")[2] == name:
            return Mend("path", (record.text,), record) if record.text != missing.text else None
    return None


def _choose_same_mend(record: FactRecord, edits: Sequence[str], others: Sequence[str]) -> Mend | None:
    """Return what stands between a failure and the success of the same command, if it is one thing."""
    if edits:
        files = tuple(dict.fromkeys(edits))
        return Mend("edit", files, record) if len(files) <= _MAX_FILES else None
    return Mend("after", (others[0],), record) if len(others) == 1 else None


def is_other_form(failed: CommandForm, worked: CommandForm, failed_key: str) -> bool:
    """Return True if a command that worked does the same as the one that failed, in another form.

    failed_key: the part of the command that the failure was about; "" if that is not known.
    """
    level = failed_key.partition(" ")[0]
    if level == "program":
        return worked.way != failed.way
    if level == "verb":
        return worked.verbs != failed.verbs and bool(set(failed.words) & set(worked.words) - {VOLATILE})
    if level == "option":
        return worked.verbs == failed.verbs and failed_key.rpartition(" ")[2] not in worked.options
    return worked.verbs[:1] == failed.verbs[:1] and _share_most(failed, worked)


def _is_forced(failed: CommandForm, worked: CommandForm, text: str) -> bool:
    """Return True if a command worked because it forced something: that is for a person to advise."""
    added = [option for option in worked.options if option not in failed.options]
    return any(_FORCING.fullmatch(option) for option in added) or text.startswith("sudo ")


def _share_most(failed: CommandForm, worked: CommandForm) -> bool:
    """Return True if two commands share most of their words, and none has another file or name in place of one."""
    failed_words, worked_words = (*failed.verbs, *failed.words), (*worked.verbs, *worked.words)
    removed = [word for word in failed_words if word not in worked_words]
    added = [word for word in worked_words if word not in failed_words]
    n_all = len({*failed_words, *worked_words})
    if worked.way == failed.way and not removed and not added:
        return False
    if n_all and (n_all - len(removed) - len(added)) / n_all < _MIN_SHARED:
        return False
    is_replaced = bool(removed and added) and not all(word.startswith("-") for word in (*removed, *added))
    return not is_replaced or (len(removed) == len(added) == 1 and _is_variant(removed[0], added[0]))


def _is_variant(old: str, new: str) -> bool:
    """Return True if two words name the same thing: a path of the same name, or a list with most of its items.

    >>> _is_variant("src/a.py", "lib/a.py"), _is_variant("title,url,oid", "title,url"), _is_variant("api", "web")
    (True, True, False)
    """
    if "/" in old or "/" in new:
        return old.rpartition("/")[2] == new.rpartition("/")[2]
    old_items, new_items = set(old.split(",")), set(new.split(","))
    return len(old_items & new_items) * 2 >= len(old_items | new_items)


def _read_form(command: str) -> CommandForm:
    """Return the form of a stored command; an empty one if masking left something that cannot be read."""
    forms = read_outcomes(command)
    return forms[-1] if forms else CommandForm(command, (), "", (), (), ())


# files --------------------------------------------------------------------------------------------------------


def _list_decisions(call: ActionCall, source: FactSource) -> list[ActionFact]:
    """Return the decisions about exactly the files of a call, newest first."""
    records = source.find([f"file {path}" for path in call.files])
    return [_describe_decision(record) for record in records if record.kind == "decided"]


def _list_choices(call: ActionCall, source: FactSource) -> list[ActionFact]:
    """Return, for each term of a command that a person refused, and did not choose since, what was said."""
    facts = []
    for keys in list_choice_keys(call.command)[:_MAX_TERMS]:
        newest = next(iter(source.find(keys)), None)
        if newest and newest.key == keys[0]:
            facts.append(_describe_decision(newest))
    return facts


# words --------------------------------------------------------------------------------------------------------

_MAX_ERROR_CHARS = 60


def _describe_mend(failure: FactRecord, mend: Mend) -> ActionFact:
    sources, day = (failure.source, mend.record.source), _format_day(failure.stated_at)
    if mend.kind == "path":
        return ActionFact((f"`{failure.text}` was missing{day}; `{mend.texts[0]}` was there",), sources, "path")
    errors = dict.fromkeys((failure.detail, failure.detail[:_MAX_ERROR_CHARS], ""))
    start = f"`{failure.text}` failed here{day}"
    ends = {
        "form": f"this worked: `{mend.texts[0]}`",
        "after": f"it worked after `{mend.texts[0]}`",
        "edit": f"it worked after an edit of {', '.join(f'`{path}`' for path in mend.texts)}",
    }
    texts = [f"{start}{f' ({error})' if error else ''}; {ends[mend.kind]}" for error in errors]
    failed, worked = _read_form(failure.text), _read_form(mend.texts[0])
    if mend.kind == "form" and failed.way != worked.way:
        texts.append(f"`{failed.run_as}` failed here{day}; `{worked.run_as}` worked")
    elif mend.kind == "form" and (removed := _list_removed(failed, worked)):
        name = " ".join((failed.program, *failed.verbs))
        error = failure.detail[:_MAX_ERROR_CHARS]
        texts.append(f"`{name}` failed here{day}{f' ({error})' if error else ''}; it worked without `{removed}`")
    return ActionFact(tuple(texts), sources, mend.kind)


def _list_removed(failed: CommandForm, worked: CommandForm) -> str:
    """Return what a command that worked leaves out, if it adds nothing; else ""."""
    old_items = [item for word in failed.words for item in word.split(",")]
    new_items = [item for word in worked.words for item in word.split(",")]
    is_shorter = set(new_items) < set(old_items)
    return " ".join(item for item in old_items if item not in new_items) if is_shorter else ""


def _describe_decision(record: FactRecord) -> ActionFact:
    who = "The user" if record.author == "person" else "An agent"
    text = f'{who} said{_format_day(record.stated_at)}: "{record.text}"'
    return ActionFact((text,), (record.source,), record.kind, by_agent=record.author != "person")


def _format_day(instant: datetime | None) -> str:
    return f" on {instant.date().isoformat()}" if instant else ""
