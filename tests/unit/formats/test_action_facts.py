"""Facts of action in the turns of a run: which calls failed or worked, which files, which decisions."""

from __future__ import annotations

import json

import pytest

from perdure.formats.action_facts import find_error_line, find_facts, find_failed_form, read_failure
from perdure.formats.command_form import read_commands, read_outcomes
from perdure.types import Part, Turn


def call(tool: str, call_id: str = "c", **fields: object) -> Turn:
    return Turn("assistant", "agent", ((0, 1),), (Part("call", json.dumps(fields), tool, call_id),), files=())


def result(output: str, *, failed: bool = False, call_id: str = "c") -> Turn:
    return Turn("tool", "tool", ((1, 2),), (Part("result", output, "", call_id, failed),))


def said(text: str, author: str = "person") -> Turn:
    return Turn("user" if author == "person" else "assistant", author, ((2, 3),), (Part("text", text),))


def facts(*turns: Turn, **more: object) -> list[tuple[str, str]]:
    return [(fact.kind, fact.text) for drafts in find_facts(turns, "/w", **more).values() for fact in drafts]


def test_a_command_failed_or_worked_by_the_recorded_status() -> None:
    assert facts(call("Bash", command="make"), result("Exit code 2\nno rule", failed=True)) == [("failed", "make")]
    assert facts(call("Bash", command="make"), result("Error: all is well")) == [("worked", "make")]
    assert facts(call("run_shell_command", command="make"), result("Output: x\nExit Code: 2")) == [("failed", "make")]
    assert facts(call("bash", command="make"), result("x\n<exited with exit code 1>")) == [("failed", "make")]
    assert facts(call("Bash", command="make"), result("x"), has_status=False) == []


@pytest.mark.parametrize(
    "output",
    ["Process running with session ID 4", "Command running in background with ID: b1", "The user doesn't want"],
)
def test_a_call_that_runs_on_or_never_ran_states_nothing(output: str) -> None:
    assert facts(call("Bash", command="make"), result(output, failed=output.startswith("The user"))) == []


def test_a_hidden_status_and_a_probe_state_nothing() -> None:
    assert facts(call("Bash", command="make | tail"), result("x", failed=True)) == []
    assert facts(call("Bash", command="ls /no"), result("ls: no such file", failed=True)) == []
    assert facts(call("Bash", command="make")) == [("called", "make")]
    assert facts(result("x", failed=True)) == [("returned", "failed")]


@pytest.mark.parametrize(
    ("command", "error", "key"),
    [
        ("pytest tests", "bash: pytest: command not found", "program pytest"),
        ("scripts/go.sh x", "zsh:1: no such file or directory: scripts/go.sh", "program scripts/ go.sh"),
        ("python -m pytest", "/usr/bin/python: No module named pytest", "program python -m pytest"),
        ("bd unlink a", 'Error: unknown command "unlink" for "bd"', "verb bd unlink"),
        ("bd dolt status --short", "Error: unknown flag: --short", "option bd dolt --short"),
        ("bd dolt status --short", "Error: unknown flag: --long", "whole bd dolt status --short"),
        ("make test", "FAIL: test_a", "whole make test"),
    ],
)
def test_a_failure_is_stored_by_the_part_that_its_error_is_about(command: str, error: str, key: str) -> None:
    ((form, _),) = read_commands(command)
    assert read_failure(form, error).keys[0] == key


def test_of_several_commands_the_error_names_the_one_that_failed() -> None:
    forms = read_outcomes("npm ci && pytest tests")
    failed = find_failed_form(forms, "bash: pytest: command not found")
    assert failed is not None and failed.program == "pytest"
    assert find_failed_form(forms, "it broke") is None


def test_files_are_changed_read_or_missing() -> None:
    assert facts(call("Edit", file_path="/w/src/a.py"), result("done")) == [("edited", "src/a.py")]
    assert facts(call("Read", file_path="/w/src/a.py"), result("text")) == [("opened", "src/a.py")]
    missing = result("<tool_use_error>File does not exist.</tool_use_error>", failed=True)
    assert facts(call("Read", file_path="/w/src/a.py"), missing) == [("missing", "src/a.py")]
    assert facts(call("Edit", file_path="/w/src/a.py"), result("String to replace not read", failed=True)) == []
    patch = "*** Begin Patch\n*** Update File: src/b.py\n*** End Patch"
    assert facts(call("apply_patch", input=patch), result("ok")) == [("edited", "src/b.py")]


DECIDED = [
    "Never edit src/tables.sql by hand, it is generated from the data.",
    "We decided to keep src/cache.py in WAL mode.",
    "`src/schema.ts`: changed the check from 130 characters to 64.",
]
NOT_DECIDED = [
    "Please look at src/tables.sql first, and then at the rest.",
    "Should src/tables.sql be generated from the data instead of written?",
    "We decided to keep the cache in WAL mode for all of them.",
    "See [tables.sql](/w/src/tables.sql:12) which must stay as it is.",
]


@pytest.mark.parametrize("text", DECIDED)
def test_a_sentence_that_decides_about_a_file_is_a_decision(text: str) -> None:
    ((kind, words),) = [fact for fact in facts(said(text)) if fact[0] != "chose"]
    assert (kind == "decided" and words.strip("`") in text.replace("`", "", 1)) or words in text


@pytest.mark.parametrize("text", NOT_DECIDED)
def test_a_request_a_question_and_a_link_decide_nothing(text: str) -> None:
    assert facts(said(text)) == []


def test_an_agent_decides_where_its_work_ends() -> None:
    words = DECIDED[0]
    assert facts(said(words, "agent"), said("thanks")) == facts(said(words, "agent")) == [("decided", words)]
    assert facts(said(words, "agent"), call("Bash", command="make")) == [("called", "make")]


def test_a_pasted_page_and_a_block_of_code_decide_nothing() -> None:
    assert facts(said(DECIDED[0] + "\n" + "Filling words of a page. " * 80)) == []
    assert facts(said(f"Look:\n```\n{DECIDED[0]}\n```")) == []


def test_a_name_without_a_folder_means_the_one_file_that_was_touched() -> None:
    touched = Turn("assistant", "agent", ((0, 1),), (), files=("/w/src/index/store.py",))
    text = "Never open store.py twice in one process, please."
    (drafts,) = find_facts([touched, said(text)], "/w").values()
    assert drafts[0].keys == ("file src/index/store.py",)
    assert facts(said(text)) == []


def test_the_error_line_says_what_went_wrong() -> None:
    assert find_error_line(
        "Chunk ID: 1\nWall time: 0.1\nProcess exited with code 1\nOutput:\nHTTP 401: Bad\nTry again"
    ) == ("HTTP 401: Bad")
    assert find_error_line("") == ""
