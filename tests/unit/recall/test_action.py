"""Which fact is told at a tool call: the form that worked, what mended the failure, the decision about the file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from perdure.access import fence
from perdure.formats.action_facts import FactDraft, build_path_key, list_form_keys, read_failure
from perdure.formats.choices import build_choice_keys, find_choices
from perdure.formats.command_form import read_commands
from perdure.index.facts import FactRecord
from perdure.recall.action import MAX_BLOCK_BYTES, ActionCall, ActionFact, choose_fact
from perdure.tool_turn import render_fact

START = datetime(2026, 3, 1, tzinfo=UTC)


class Facts:
    """Facts of one thread, in order; the source that recall asks."""

    def __init__(self, *drafts: FactDraft) -> None:
        self.drafts = drafts
        self.records = [
            FactRecord(n, draft.kind, draft.text, draft.detail, f"t{n:016}", "person", 1, n, 0, START + timedelta(n))
            for n, draft in enumerate(drafts)
        ]

    def find(self, keys: Sequence[str]) -> list[FactRecord]:
        found = []
        for record, draft in zip(self.records, self.drafts, strict=True):
            key = next((key for key in keys if key in draft.keys), None)
            if key:
                found.append(replace(record, key=key))
        return found[::-1]

    def list_after(self, record: FactRecord, limit: int) -> list[FactRecord]:
        return [later for later in self.records if later.place > record.place][:limit]


def failed(command: str, error: str) -> FactDraft:
    ((form, _),) = read_commands(command)
    return read_failure(form, error)


def worked(command: str) -> FactDraft:
    ((form, _),) = read_commands(command)
    return FactDraft("worked", form.text, list_form_keys(form))


def edited(path: str) -> FactDraft:
    return FactDraft("edited", path, (build_path_key(path),))


def before(command: str, *drafts: FactDraft) -> str:
    fact = choose_fact(ActionCall("run", command), Facts(*drafts))
    return fact.texts[0] if fact else ""


def after(command: str, error: str, *drafts: FactDraft) -> str:
    fact = choose_fact(ActionCall("run", command, (), error), Facts(*drafts))
    return fact.texts[0] if fact else ""


NOT_FOUND = "bash: pytest: command not found"


# before a command ---------------------------------------------------------------------------------------------


def test_a_failed_form_gets_the_form_that_worked() -> None:
    told = before("pytest tests", failed("pytest tests", NOT_FOUND), worked(".venv/bin/python -m pytest tests"))
    assert told == (
        "`pytest tests` failed here on 2026-03-01 (bash: pytest: command not found); "
        "this worked: `.venv/bin/python -m pytest tests`"
    )


def test_an_error_about_the_program_counts_for_all_its_arguments() -> None:
    drafts = failed("pytest tests", NOT_FOUND), worked("uv run pytest tests")
    assert "uv run" in before("cd src && pytest other -q | tail -3", *drafts)
    assert before("uv run pytest other", *drafts) == before("ruff check", *drafts) == ""


def test_an_error_about_an_option_counts_for_that_option() -> None:
    drafts = failed("bd dolt status --short", "Error: unknown flag: --short"), worked("bd dolt status")
    assert "this worked: `bd dolt status`" in before("bd dolt status --short", *drafts)
    assert before("bd dolt status", *drafts) == before("bd dolt push", *drafts) == ""


def test_a_subcommand_that_was_looked_up_replaces_an_unknown_one() -> None:
    unknown = failed("bd unlink a", 'Error: unknown command "unlink" for "bd"')
    assert "`bd dep remove a b`" in before(
        "bd unlink a", unknown, worked("bd dep remove --help"), worked("bd dep remove a b")
    )
    assert before("bd unlink a", unknown, worked("bd list")) == ""


def test_a_list_with_fewer_items_is_a_form_of_the_same_command() -> None:
    bad = failed("gh pr view 7 --json title,url,oid", 'Unknown JSON field: "oid"')
    assert "--json title,url`" in before(
        "gh pr view 9 --json title,url,oid", bad, worked("gh pr view 8 --json title,url")
    )


def test_a_form_that_has_worked_since_gets_nothing() -> None:
    drafts = failed("make check", "it broke"), worked("make check -j1"), worked("make check")
    assert before("make check", *drafts[:2]) and before("make check", *drafts) == ""


@pytest.mark.parametrize(
    "later",
    [
        "git -C /w/b status --short",  # another place
        "git -C /w/a log --short",  # another subcommand
        "ruff check",  # another program
    ],
)
def test_other_work_is_no_mend(later: str) -> None:
    assert (
        before("git -C /w/a status --short", failed("git -C /w/a status --short", "fatal: broken"), worked(later)) == ""
    )


def test_other_commands_in_between_end_the_search_for_a_form() -> None:
    drafts = failed("make check", "it broke"), worked("npm ci"), worked("make check -j1")
    assert before("make check", *drafts) == ""


def test_what_another_form_does_not_mend_is_not_told() -> None:
    assert before("gh pr view", failed("gh pr view", "HTTP 401: Bad credentials"), worked("gh pr view --web")) == ""
    assert before("git push", failed("git push", "! [rejected] main"), worked("git push --force")) == ""
    assert before("make up", failed("make up", "it broke"), worked("sudo make up")) == ""


def test_a_look_at_a_missing_script_gets_its_place() -> None:
    missing = failed("scripts/go.sh a", "zsh:1: no such file or directory: scripts/go.sh")
    assert "`/h/skills/go.sh a`" in before("ls scripts/go.sh 2>/dev/null", missing, worked("/h/skills/go.sh a"))


# after a failure ----------------------------------------------------------------------------------------------

ERROR = "FAIL: test_tides expected 3 got 4"


def test_a_test_that_fails_again_gets_the_edit_that_made_it_pass() -> None:
    drafts = failed("make check", ERROR), edited("src/tides.py"), worked("make check")
    assert after("make check", f"Exit code 1\n{ERROR}", *drafts).endswith("it worked after an edit of `src/tides.py`")
    assert after("make check", "FAIL: test_moon expected 1", *drafts) == ""
    assert before("make check", *drafts) == ""


def test_a_failure_gets_the_one_command_that_came_before_its_success() -> None:
    drafts = failed("make check", "Error: modules are missing"), worked("npm ci"), worked("make check")
    assert after("make check", "Error: modules are missing", *drafts).endswith("it worked after `npm ci`")
    drafts = (*drafts[:2], worked("npm run gen"), drafts[2])
    assert after("make check", "Error: modules are missing", *drafts) == ""


def test_many_edits_are_no_answer() -> None:
    drafts = failed("make check", ERROR), *(edited(f"src/{n}.py") for n in range(4)), worked("make check")
    assert after("make check", ERROR, *drafts) == ""


def test_a_probe_that_fails_gets_nothing() -> None:
    assert after("ls /no", "ls: no such file", failed("make", "ls: no such file"), worked("make -j1")) == ""


# files --------------------------------------------------------------------------------------------------------


def test_a_file_gets_the_newest_decision_about_it() -> None:
    old, new = (
        FactDraft("decided", f"Never edit a.sql {when}.", ("file src/a.sql",)) for when in ("by hand", "at all")
    )
    told = choose_fact(ActionCall("edit", "", ("src/a.sql",)), Facts(old, new))
    assert told and told.texts == ('The user said on 2026-03-02: "Never edit a.sql at all."',)
    assert choose_fact(ActionCall("edit", "", ("src/b.sql",)), Facts(old, new)) is None
    assert choose_fact(ActionCall("edit", "", ("src/a.sql",)), Facts(old), frozenset([f"decided t{0:016}/0"])) is None


def test_a_missing_file_gets_the_path_where_it_was() -> None:
    missing = FactDraft("missing", "src/a.py", (build_path_key("src/a.py"),))
    found = FactDraft("opened", "lib/a.py", (build_path_key("lib/a.py"),))
    call = ActionCall("read", "", ("src/a.py",))
    told = choose_fact(call, Facts(missing, found))
    assert told and told.texts == ("`src/a.py` was missing on 2026-03-01; `lib/a.py` was there",)
    assert choose_fact(call, Facts(missing, found, FactDraft("opened", "src/a.py", missing.keys))) is None


# the block ----------------------------------------------------------------------------------------------------


def test_a_block_has_at_most_400_bytes_or_is_none() -> None:
    nonce = fence.make_nonce()
    long, short = "`" + "x" * 300 + "` failed", "`pytest` failed"
    block = render_fact(ActionFact((long, short), (("t123456789", 0),), "form"), nonce)
    assert short in block and "[t1234567]" in block and len(block.encode()) <= MAX_BLOCK_BYTES
    assert render_fact(ActionFact((long,), (("t1", 0),), "form"), nonce) == ""
    assert render_fact(ActionFact(("é" * 150,), (("t1", 0),), "form"), nonce) == ""


def test_a_command_is_told_whole_or_by_its_program_alone() -> None:
    long = " ".join(f"--handle-{n}" for n in range(30))
    missing = failed(f"scripts/go.sh {long}", "no such file or directory: scripts/go.sh")
    fact = choose_fact(ActionCall("run", "scripts/go.sh a"), Facts(missing, worked(f"/h/skills/go.sh {long}")))
    assert fact and "`scripts/go.sh` failed here on 2026-03-01; `/h/skills/go.sh` worked" in render_fact(fact, "0" * 16)


# what a person refused ------------------------------------------------------------------------------------------


def chose(sentence: str) -> FactDraft:
    (choice,) = find_choices(sentence)
    return FactDraft("chose", sentence, build_choice_keys(choice))


@pytest.mark.parametrize("command", ["npm install left-pad", "cd web && npm run build | tail -5"])
def test_command_that_was_refused_is_told_what_the_person_said(command):
    assert before(command, chose("use pnpm, not npm")) == 'The user said on 2026-03-01: "use pnpm, not npm"'


def test_port_that_was_given_up_is_told():
    moved = chose("we moved from port 8080 to 8443")
    assert "8443" in before("python -m http.server 8080", moved)
    assert "8443" in before("curl -s http://localhost:8080/health", moved)
    assert before("curl -s http://localhost:8443/health", moved) == ""


def test_choice_taken_back_is_not_told():
    assert before("npm ci", chose("use pnpm, not npm"), chose("use npm, not pnpm")) == ""
    assert "not pnpm" in before("pnpm i", chose("use pnpm, not npm"), chose("use npm, not pnpm"))


def test_other_command_of_a_program_is_not_told():
    assert before("git status", chose("never run git stash")) == ""
    assert "git stash" in before("git stash pop", chose("never run git stash"))
