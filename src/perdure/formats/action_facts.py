"""Find the facts of action in a run: commands that failed or worked, files that were missing, read or changed,
decisions about files, and what a person chose instead of what.

Pure, and without language but for the few words of a decision. A fact belongs to one turn and is masked by whoever
stores it. Its keys are the names under which it is found again: the form of a command, its error, a file. Which failure
was mended by which later command is decided when somebody asks (`recall.action`), as both may lie in different runs. So
may a call and its result, as a client may be captured between them: then one run states that something was called and
another one how it returned, and `join_call` makes of the two what one run would have stated.

A failure counts as far as its error reaches: "command not found" is about the program, "unknown option" about the
option, everything else about the whole command.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Literal, NamedTuple

from perdure.formats.call_text import get_tool_kind, read_call_command
from perdure.formats.choices import Choice, build_choice_keys, find_choices, list_terms
from perdure.formats.command_form import CommandForm, read_commands, read_outcomes
from perdure.formats.parts import find_files_and_skills
from perdure.regex import lazy_re
from perdure.types import Part, Turn

FactKind = Literal["failed", "worked", "missing", "opened", "edited", "decided", "chose", "called", "returned"]
STATUS_RUNTIMES = (
    "claude-code",
    "codex",
    "pi",
    "gemini-cli",
    "copilot-cli",
    "opencode",
    "qwen-code",
    "kimi-code",
    "cline",
)  # record which calls failed
EDIT_KINDS = ("edit", "write", "patch")
MAX_ERROR_CHARS = 160
_MAX_OUTPUT_CHARS = 20_000  # of a failed command, from its end; errors stand there
_NOT_RUN = lazy_re(
    r"\A\s*(?:<tool_use_error>|The user doesn't want|Claude requested permissions|Command (?:aborted|timed out)"
    r"|exec_command failed|\[Request interrupted|This command requires approval|Permission (?:to|for)"
    r"|denied: the person does not|refused: .* Do not try to reach|not allowed: .*so a person must|not run: a limit of"
    r"|cancelled before it ran|interrupted: unknown whether)"  # Perdure's own
)
_STILL_RUNS = lazy_re(
    r"Process running with session ID|Command running in background|Command was manually backgrounded"
)
_STATED_STATUS = lazy_re(r"<(?:exited|shellId: \S+ completed) with exit code (-?\d+)>\s*\Z|^Exit Code: (-?\d+)$", re.M)
_STATUS_LINE = lazy_re(
    r"\A(?:Exit code:? -?\d+|Chunk ID: .*|Wall time: .*|Process exited .*|Original token .*|Output:|Error: Exit code.*"
    r"|npm (?:warn|notice|ERR! (?:code|path|A complete log)).*|<exited with .*|Command: .*|Directory: .*|Stdout: .*)\Z",
    re.I,
)
_ERROR_LINE = lazy_re(
    r"error|fail|not found|no such|cannot|can't|denied|unknown|unrecognized|invalid|unexpected|expected|panic|exception"
    r"|rejected|refused|missing|fatal|undefined|accepts at most|not allowed|HTTP [45]\d\d|unauthori[sz]ed|forbidden",
    re.I,
)
_NO_PROGRAM = lazy_re(r"command not found|not found\b|no such file or directory|is not recognized as", re.I)
_NO_FILE = lazy_re(r"does not exist|no such file|not found|ENOENT", re.I)
_MAX_FILE_ERROR_CHARS = 300
_NO_MODULE = lazy_re(r"No module named ['\"]?([\w.]+)")
_NO_VERB = lazy_re(
    r"unknown (?:sub)?command|is not a \w+ command|no such (?:sub)?command|unrecognized subcommand|Missing script"
    r"|No rule to make target|Unknown task|invalid choice: ",
    re.I,
)
_NO_OPTION = lazy_re(
    r"(?:unknown|unrecogni[sz]ed|invalid|illegal|no such|unexpected|bad) "
    r"(?:shorthand )?(?:options?|flags?|arguments?|switch)\b[^\n]{0,40}?(--?[A-Za-z][\w-]*)",
    re.I,
)
_VOLATILE_IN_ERROR = lazy_re(r"\d+|0x[0-9a-f]+|'[^'\n]{30,}'|/(?:tmp|var|private|home|Users)/\S+", re.I)


class FactDraft(NamedTuple):
    """A fact of action as its turn states it: not masked yet."""

    kind: FactKind
    text: str  # the command, the path of a file, or the words of the decision or choice
    keys: tuple[str, ...]  # names under which it is found
    detail: str = ""  # of a failure: the line of its output that says most


class _Call(NamedTuple):
    tool: str
    command: str
    files: tuple[str, ...]


def find_facts(turns: Sequence[Turn], folder: str | None, *, has_status: bool = True) -> dict[int, list[FactDraft]]:
    """Return the facts of each turn of one thread of a run, by the turn's place in `turns`.

    folder: the project or working folder; paths inside it are relative to it. has_status: the client records which
    calls failed; without that there are only decisions.
    """
    calls: dict[str, _Call] = {}  # whose result has not come yet
    places: dict[str, int] = {}  # of their turns
    facts: dict[int, list[FactDraft]] = {}
    touched = {to_relative(path, folder) for turn in turns for path in turn.files}
    for place, turn in enumerate(turns):
        for part in turn.parts:
            if part.kind == "call" and part.call_id:
                calls[part.call_id] = _read_call(part, folder)
                places[part.call_id] = place
            elif part.kind == "result" and has_status and part.call_id:
                facts.setdefault(place, []).extend(_read_result(calls.pop(part.call_id, None), part))
        if is_deciding(turns, place):
            facts.setdefault(place, []).extend(_find_decisions(turn, touched))
            facts[place].extend(_find_choices(turn))
    for call_id, call in calls.items() if has_status else ():
        facts.setdefault(places[call_id], []).extend(_describe_open_call(call, call_id))
    return {place: drafts for place, drafts in facts.items() if drafts}


# commands and edits -------------------------------------------------------------------------------------------


def _read_call(part: Part, folder: str | None) -> _Call:
    kind = get_tool_kind(part.name)
    command = read_call_command(part.text) if kind == "run" else ""
    if kind in (*EDIT_KINDS, "read") or "*** Begin Patch" in command:
        files, _ = find_files_and_skills(part.name, _decode(part.text))
        is_read = kind == "read"
        paths = tuple(dict.fromkeys(to_relative(path, folder) for path in files))
        return _Call("read" if is_read else "edit", "", paths)
    return _Call(kind, command, ())


def _decode(text: str) -> Any:
    try:
        return json.loads(text, strict=False) if text[:1] in "{[" else text
    except (ValueError, RecursionError):
        return text


def _read_result(call: _Call | None, part: Part) -> Iterator[FactDraft]:
    """Yield what a result says about its call; without the call, how it returned. Nothing of one that did not run."""
    has_failed = has_call_failed(part)
    is_missing = has_failed and bool(_NO_FILE.search(part.text[:_MAX_FILE_ERROR_CHARS]))
    if _STILL_RUNS.search(part.text[:400]) or (_NOT_RUN.match(part.text) and not is_missing):
        return
    if call is None:
        error = find_error_line(part.text) if has_failed else ""
        yield FactDraft("returned", "failed" if has_failed else "worked", (build_call_key(part.call_id),), error)
    elif has_failed:
        yield from _read_failed_call(call, part.text)
    else:
        yield from _read_worked_call(call)


def _read_failed_call(call: _Call, output: str) -> Iterator[FactDraft]:
    if len(call.files) == 1 and _NO_FILE.search(output[:_MAX_FILE_ERROR_CHARS]):
        yield FactDraft("missing", call.files[0], (build_path_key(call.files[0]),))
    forms = read_outcomes(call.command) if call.command else ()
    if (form := find_failed_form(forms, output)) and not form.is_probe:
        yield read_failure(form, output)


def _read_worked_call(call: _Call) -> Iterator[FactDraft]:
    kind: FactKind = "edited" if call.tool == "edit" else "opened"
    yield from (FactDraft(kind, path, (build_path_key(path),)) for path in call.files)
    for form in read_outcomes(call.command) if call.command else ():
        if not form.is_probe:
            yield FactDraft("worked", form.text, list_form_keys(form))


def _describe_open_call(call: _Call, call_id: str) -> Iterator[FactDraft]:
    """Yield a call without a result, under every name that it could have with one; nothing for several commands."""
    forms = read_outcomes(call.command) if call.command else ()
    if len(forms) == 1 and not forms[0].is_probe:
        yield FactDraft("called", forms[0].text, list_form_keys(forms[0]), f"run\n{call_id}")
    elif len(call.files) == 1:
        yield FactDraft("called", call.files[0], (build_path_key(call.files[0]),), f"{call.tool}\n{call_id}")


def build_call_key(call_id: str) -> str:
    """Return the name under which the return of a call is stored."""
    return f"call {call_id}"


def get_call_id(called: str) -> str:
    """Return the id in the detail of a stored call."""
    return called.partition("\n")[2]


def join_call(text: str, called: str, *, has_failed: bool, error: str) -> FactDraft | None:
    """Return what a stored call and its stored return state together; None if that is nothing.

    text, called: the text and the detail of the call. error: the detail of the return.
    """
    tool = called.partition("\n")[0]
    call = _Call(tool, text, ()) if tool == "run" else _Call(tool, "", (text,))
    drafts = _read_failed_call(call, error) if has_failed else _read_worked_call(call)
    return next(drafts, None)


def has_call_failed(result: Part) -> bool:
    """Return True if the client, or the status that it wrote into the output, says that the call failed."""
    if result.is_error:
        return True
    status = _STATED_STATUS.search(result.text[-200:]) or _STATED_STATUS.search(result.text[:400])
    return status is not None and (status[1] or status[2]) != "0"


def find_failed_form(forms: Sequence[CommandForm], output: str) -> CommandForm | None:
    """Return the command of a line that failed: its only one, or the only one that the error names; else None."""
    if len(forms) < 2:
        return forms[0] if forms else None
    error = find_error_line(output)
    named_forms = [form for form in forms if re.search(rf"(?<![\w-]){re.escape(form.program)}(?![\w-])", error)]
    return named_forms[0] if len(named_forms) == 1 else None


def read_failure(form: CommandForm, output: str) -> FactDraft:
    """Return the fact that a command failed, found again by as much of it as its error is about."""
    error = find_error_line(output)
    key = _get_failed_key(form, error)
    path = form.path if key.startswith("program ") else ""
    path_keys = (build_path_key(path),) if "/" in path else ()
    return FactDraft("failed", form.text, (key, *_list_error_keys(form, error), *path_keys), error)


def build_path_key(path: str) -> str:
    """Return the name under which a path is stored that was missing, or was read or changed."""
    return f"path {path}"


def _get_failed_key(form: CommandForm, error: str) -> str:
    """Return the name of the part of a command that its error is about."""
    option = _NO_OPTION.search(error)
    if option and option[1] in form.options:
        return _build_option_key(form, option[1])
    if _NO_VERB.search(error) and form.verbs:
        n_known = 1 if re.search(rf"['\"`:]\s?{re.escape(form.verbs[0])}\b", error) else len(form.verbs)
        return _build_verb_key(form, n_known)
    if (_NO_PROGRAM.search(error) and form.program in error) or (
        (module := _NO_MODULE.search(error)) and module[1] == form.program
    ):
        return _build_program_key(form)
    return f"whole {form.whole}"


def list_form_keys(form: CommandForm) -> tuple[str, ...]:
    """Return every name under which a failure of a command like this one may be stored."""
    options = (_build_option_key(form, option) for option in dict.fromkeys(form.options))
    verbs = (_build_verb_key(form, n_verbs) for n_verbs in range(1, len(form.verbs) + 1))
    return (f"whole {form.whole}", _build_program_key(form), *verbs, *options)


def _build_program_key(form: CommandForm) -> str:
    return f"program {' '.join((*form.way, form.program))}"


def _build_verb_key(form: CommandForm, n_verbs: int) -> str:
    return f"verb {' '.join((*form.way, form.program, *form.verbs[:n_verbs]))}"


def _build_option_key(form: CommandForm, option: str) -> str:
    return f"option {' '.join((form.program, *form.verbs[:1], option))}"


def _list_error_keys(form: CommandForm, error: str) -> tuple[str, ...]:
    stable_error = _VOLATILE_IN_ERROR.sub("#", error)
    return (f"error {form.program} {stable_error}",) if len(stable_error) >= _MIN_ERROR_CHARS else ()


_MIN_ERROR_CHARS = 16  # of an error that tells one failure from another


def find_error_line(output: str) -> str:
    """Return the first line of an output that names an error; the last line if none does.

    >>> find_error_line("Exit code 1\\n> check\\na.py:3: error: no x\\n")
    'a.py:3: error: no x'
    """
    lines = [line for line in map(str.strip, output[-_MAX_OUTPUT_CHARS:].splitlines()) if line]
    lines = [line for line in lines if not _STATUS_LINE.match(line)]
    line = next(filter(_ERROR_LINE.search, lines), lines[-1] if lines else "")
    return line[:MAX_ERROR_CHARS]


# files --------------------------------------------------------------------------------------------------------


def to_relative(path: str, folder: str | None) -> str:
    """Return a path as it stands inside a folder, with slashes; one outside it stays as it is.

    >>> to_relative("/w/src/a.py", "/w"), to_relative("./src/a.py", "/w"), to_relative("D:\\\\w\\\\a.go", "D:\\\\w")
    ('src/a.py', 'src/a.py', 'a.go')
    """
    path, root = path.replace("\\", "/"), (folder or "").replace("\\", "/").rstrip("/")
    if root and path.startswith(f"{root}/"):
        return path[len(root) + 1 :]
    return path.removeprefix("./")


# decisions ----------------------------------------------------------------------------------------------------

_MAX_SENTENCE_CHARS = 260
_MIN_SENTENCE_CHARS = 24
_MIN_CHOICE_CHARS = 10
_MAX_DECISIONS = 12  # of one turn
_SENTENCE_END = lazy_re(r"(?<=[.!?])\s+(?=[A-Z`*\"'(-])|\n+")
_FILE_NAME = lazy_re(r"(?<![\w/.@:-])(?:[\w.@+-]+/)*[\w@+-][\w.@+-]*\.[A-Za-z][A-Za-z0-9]{0,7}(?![\w/])")
_DECISION = lazy_re(
    r"\b(?:decided|decision|must(?: not| never)?|never|always|do not|don't|should(?:n't| not| never| stay| be)"
    r"|instead of|rather than|no longer|on purpose|intentional(?:ly)?|deliberate(?:ly)?|keep (?:it|this|the|them)"
    r"|stays? (?:in|as|on)"
    r"|because|so that|to avoid|otherwise|changed \S.{0,80} to|corrected from|switched (?:to|from)"
    r"|replaced \S.{0,60} (?:with|by)|moved (?:to|from|into|out)|renamed|source of truth|generated (?:by|from)"
    r"|do it in|belongs? (?:in|to)|replaced by|superseded|deprecated|hands? off|leave (?:it|this|that) alone)\b",
    re.I,
)
_QUESTION_END = "?"
_MAX_TYPED_CHARS = 1500  # of a text that a person typed; a longer one was pasted, whatever its client says


def is_deciding(turns: Sequence[Turn], place: int) -> bool:
    """Return True if a turn can decide something: a person typed it, or the agent ended its work with it."""
    turn = turns[place]
    if turn.is_summary or turn.role not in ("user", "assistant"):
        return False
    if turn.author == "person":
        return True
    if turn.author != "agent" or any(part.kind == "call" for part in turn.parts):
        return False
    return place + 1 == len(turns) or turns[place + 1].author == "person"


def _find_decisions(turn: Turn, touched: set[str]) -> Iterator[FactDraft]:
    n_found = 0
    for part in turn.parts:
        if part.kind != "text" or (turn.author == "person" and len(part.text) > _MAX_TYPED_CHARS):
            continue
        for sentence in _list_sentences(part.text, _MIN_SENTENCE_CHARS):
            if not _DECISION.search(sentence) or "](" in sentence:
                continue
            files = [path for name in _FILE_NAME.findall(sentence) if (path := _resolve(name, touched))]
            for path in dict.fromkeys(files[:2]):
                yield FactDraft("decided", sentence, (f"file {path}",))
                n_found += 1
            if n_found >= _MAX_DECISIONS:
                return


def _find_choices(turn: Turn) -> Iterator[FactDraft]:
    """Yield what a person chose instead of what: an agent that writes so mostly tells what it did."""
    if turn.author != "person":
        return
    texts = [part.text for part in turn.parts if part.kind == "text" and len(part.text) <= _MAX_TYPED_CHARS]
    sentences = (sentence for text in texts for sentence in _list_sentences(text, _MIN_CHOICE_CHARS))
    choices = ((sentence, choice) for sentence in sentences for choice in find_choices(sentence))
    for sentence, choice in islice(choices, _MAX_DECISIONS):
        yield FactDraft("chose", sentence, build_choice_keys(choice))


def _list_sentences(text: str, min_chars: int) -> Iterator[str]:
    """Yield the sentences of a text outside its blocks of code, in one line each; no questions."""
    outside = re.sub(r"```.*?(?:```|\Z)", "\n", text, flags=re.S)
    for raw in _SENTENCE_END.split(outside):
        sentence = " ".join(raw.strip(" \t-*#>|").split())
        if min_chars <= len(sentence) <= _MAX_SENTENCE_CHARS and not sentence.endswith(_QUESTION_END):
            yield sentence


def _resolve(name: str, touched: Iterable[str]) -> str:
    """Return the one touched file that a name in a text means; a path that nothing touched stands for itself; else "".

    >>> _resolve("store.py", {"src/index/store.py"}), _resolve("store.py", {"a/store.py", "b/store.py"})
    ('src/index/store.py', '')
    """
    name = name.removeprefix("./")
    matches = [path for path in touched if path == name or path.endswith(f"/{name}")]
    if len(matches) == 1:
        return matches[0]
    return name if name in matches or (not matches and "/" in name) else ""


def list_choice_keys(line: str) -> list[tuple[str, ...]]:
    """Return for each term of a command line the names under which it was refused, and chosen."""
    terms = dict.fromkeys(term for form, _ in read_commands(line) for term in list_terms(form))
    return [build_choice_keys(Choice(chosen=term, refused=term)) for term in terms]


def list_command_keys(line: str) -> list[tuple[CommandForm, tuple[str, ...]]]:
    """Return each command of a line that could repeat a failure, with the names under which that is stored.

    A command that only looks at a path could repeat that the path is missing, and nothing else.
    """
    return [
        (form, (*(() if form.is_probe else list_form_keys(form)), *map(build_path_key, form.paths)))
        for form, _ in read_commands(line)
    ]
