"""A failure counts as fixed when the same check failed, a file was edited, and the check passed."""

import json

import pytest

from perdure.formats.fixes import find_fixes
from perdure.types import Part, Turn

FAILED = "Exit code 1\n> check\na.py:3: error: no x\nfound 1 error"


def call(name: str, call_id: str, **fields: object) -> Part:
    return Part("call", json.dumps(fields), name, call_id)


def build_session(command: object, *, output: str = FAILED, edit: bool = True, is_error: bool = True) -> list[Turn]:
    """A check, an edit, and the check again, which passes."""
    parts = [
        call("Bash", "c1", command=command),
        Part("result", output, "Bash", "c1", is_error=is_error),
        *([call("Edit", "c2", file_path="/w/a.py")] if edit else []),
        call("Bash", "c3", command=command),
        Part("result", "ok", "Bash", "c3"),
    ]
    return [
        Turn("assistant", "agent", ((n, n + 1),), (part,), files=("/w/a.py",) if part.name == "Edit" else ())
        for n, part in enumerate(parts)
    ]


def test_failed_check_that_passes_after_an_edit_is_a_fix() -> None:
    (fix,) = find_fixes(build_session("cd /w && make test 2>&1"))
    assert (fix.command, fix.error, fix.files) == ("make test", "a.py:3: error: no x", ("/w/a.py",))
    assert (fix.failed.offset, fix.passed.offset) == (1, 4)


def test_command_may_be_a_list_of_words() -> None:
    assert len(find_fixes(build_session(["bash", "-lc", "cargo test"]))) == 1


@pytest.mark.parametrize("command", ["pytest | tail -3", "pytest; true", "pytest || true", "pytest &", "ls src", 7])
def test_command_that_proves_nothing_is_no_check(command: object) -> None:
    assert find_fixes(build_session(command)) == []


def test_check_that_passes_without_an_edit_is_no_fix() -> None:
    assert find_fixes(build_session("make test", edit=False)) == []


@pytest.mark.parametrize("output", ["The user doesn't want to proceed", "<tool_use_error>no</tool_use_error>"])
def test_refused_command_did_not_fail(output: str) -> None:
    assert find_fixes(build_session("make test", output=output)) == []


def test_check_that_never_failed_is_no_fix() -> None:
    assert find_fixes(build_session("make test", is_error=False)) == []
