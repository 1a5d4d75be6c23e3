"""Modes, rules and answers decide which calls run (J02, J03)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.agent.commands import Risk
from perdure.agent.folders import ProjectFolders
from perdure.agent.permission import (
    MODES,
    OnAsk,
    PermissionAnswer,
    PermissionGate,
    PermissionRequest,
    PermissionRules,
    parse_rule,
)
from perdure.errors import ConfigFault
from perdure.formats import action_facts, fixes
from perdure.formats.perdure import CallEntry


def call(name: str, **given: Any) -> CallEntry:
    return CallEntry(id="c1", name=name, input=given)


def shell(command: str) -> CallEntry:
    return call("shell", command=command)


def answer(*choices: str, words: str = "") -> Callable[[PermissionRequest], PermissionAnswer]:
    left = list(choices)
    return lambda _: PermissionAnswer(left.pop(0), words)  # type: ignore[arg-type]


def rules(**texts: list[str]) -> PermissionRules:
    return PermissionRules(**{name: tuple(map(parse_rule, items)) for name, items in texts.items()})


EXPECTED = [  # call, and whether it goes ahead in the modes plan, ask, edits, yolo
    (call("read_file", path="Makefile"), "yyyy"),
    (call("recall", message="x"), "yyyy"),
    (call("remember", text="x"), "nyyy"),
    (call("wait_for_agent", runs=["a1"]), "yyyy"),
    (call("queue_agent", instruction="x"), "nyyy"),
    (shell("ls"), "yyyy"),
    (shell("mkdir build"), "nyyy"),
    (call("write_file", path="a.txt", text=""), "nnyy"),
    (call("edit_file", path="src/a.py", old="a", new="b"), "nnyy"),
    (shell("echo hi > a.txt"), "nnyy"),
    (shell("git commit -m x"), "nnyy"),
    (shell("pytest"), "nnny"),
    (shell("rm -rf build"), "nnny"),
    (shell("git push --force"), "nnny"),
    (call("write_file", path=".git/hooks/pre-commit", text=""), "nnny"),
    (call("image_generate", prompt="x", path="a.png"), "nnny"),
    (call("tool_of_somebody", x=1), "nnny"),
    (call("files__read-text", path="Makefile"), "nnny"),
    (CallEntry(id="c1", name="activate_skill", input={"name": "x"}), "yyyy"),
    (shell("perdure floor write system x"), "nnnn"),
    (call("write_file", path="../mind/config.toml", text=""), "nnnn"),
    (call("write_file", path="../mind/agents/default/agent.yaml", text=""), "nnnn"),
    (call("write_file", path="/etc/passwd", text=""), "nnnn"),
    (call("edit_file", path="link/passwd", old="a", new="b"), "nnnn"),
]


@pytest.mark.parametrize(("one", "expected"), EXPECTED, ids=[str(dict(one.input)) for one, _ in EXPECTED])
def test_a_mode_lets_calls_ahead(one: CallEntry, expected: str, folders: ProjectFolders) -> None:
    verdicts = [PermissionGate(folders, mode=mode).decide(one).is_allowed for mode in MODES]
    assert "".join("y" if verdict else "n" for verdict in verdicts) == expected


def test_planning_no_rule_and_no_answer_lets_a_change_ahead(folders: ProjectFolders) -> None:
    """The person is not even asked: what changes something belongs into the plan."""
    gate = PermissionGate(folders, rules=rules(allow=["shell(pytest *)", "write_file"]), on_ask=answer("always"))
    assert gate.decide(shell("make")).is_allowed
    gate.mode = "plan"
    for one in (shell("make"), shell("pytest"), call("write_file", path="a.txt", text=""), shell("cat ../outside.txt")):
        permission = gate.decide(one)
        assert not permission.is_allowed
        assert "in plan mode only what reads may run" in permission.words
    assert gate.decide(shell("git status && ls")).is_allowed
    gate.mode = "ask"
    assert gate.decide(shell("make")).is_allowed


def test_the_person_sees_what_an_edit_would_change(folders: ProjectFolders) -> None:
    (folders.root / "a.txt").write_text("one\ntwo\n")
    requests: list[PermissionRequest] = []

    def ask(request: PermissionRequest) -> PermissionAnswer:
        requests.append(request)
        return PermissionAnswer("deny")

    gate = PermissionGate(folders, on_ask=ask)
    gate.decide(call("edit_file", path="a.txt", old="two", new="2"))
    gate.decide(call("write_file", path="b.txt", text="new\n"))
    gate.decide(call("edit_file", path="a.txt", old="three", new="3"))
    gate.decide(shell("make"))
    edit, new_file, impossible, command = (request.change for request in requests)
    assert edit is not None and (edit.old, edit.new) == ("one\ntwo\n", "one\n2\n")
    assert edit.diff.splitlines()[2:] == ["@@ -1,2 +1,2 @@", " one", "-two", "+2"]
    assert new_file is not None and (new_file.old, new_file.new, new_file.shown) == (None, "new\n", "b.txt")
    assert impossible is None and command is None
    assert (folders.root / "a.txt").read_text() == "one\ntwo\n"


def test_a_long_change_says_how_much_of_it_is_not_shown(folders: ProjectFolders) -> None:
    """3,000 new lines and 3 lines of the head, of which 2,000 are shown."""
    requests: list[PermissionRequest] = []
    gate = PermissionGate(folders, on_ask=requests.append)
    gate.decide(call("write_file", path="a.txt", text="x\n" * 3000))
    change = requests[0].change
    assert change is not None
    assert change.diff.splitlines()[-1] == "[1,003 more lines of the diff are not shown.]"


def test_the_person_is_asked_with_the_reason(folders: ProjectFolders) -> None:
    requests: list[PermissionRequest] = []

    def ask(request: PermissionRequest) -> PermissionAnswer:
        requests.append(request)
        return PermissionAnswer("deny", "not now")

    permission = PermissionGate(folders, on_ask=ask).decide(shell("ls && rm -rf build && pytest"))
    assert [risk.risk for risk in requests[0].risks] == [Risk.HARD, Risk.UNKNOWN]
    assert requests[0].reason == "deletes files; it is not known what pytest does"
    assert not permission.is_allowed
    assert "not now" in permission.words


def test_always_holds_for_the_same_command_alone(folders: ProjectFolders) -> None:
    gate = PermissionGate(folders, on_ask=answer("always", "deny", "deny"))
    assert gate.decide(shell("pytest -q")).words == "allowed for the session"
    assert gate.decide(shell("pytest -q")).is_allowed
    assert gate.decide(shell("ls && pytest -q")).is_allowed
    assert not gate.decide(shell("pytest -q; rm -rf build")).is_allowed
    assert not gate.decide(shell("pytest -qq")).is_allowed


def test_always_for_an_edit_holds_for_the_files_of_the_project(folders: ProjectFolders) -> None:
    gate = PermissionGate(folders, on_ask=answer("always", "deny"))
    assert gate.decide(call("write_file", path="a.txt", text="")).is_allowed
    assert gate.decide(call("write_file", path="b.txt", text="")).is_allowed
    assert not gate.decide(call("write_file", path=".git/config", text="")).is_allowed


def test_once_holds_once(folders: ProjectFolders) -> None:
    gate = PermissionGate(folders, on_ask=answer("once", "deny"))
    assert gate.decide(shell("pytest")).words == "allowed once"
    assert not gate.decide(shell("pytest")).is_allowed


def test_a_rule_allows_its_commands_and_no_others(folders: ProjectFolders) -> None:
    gate = PermissionGate(folders, rules=rules(allow=["shell(pytest *)"]))
    assert gate.decide(shell("pytest")).is_allowed
    assert gate.decide(shell("ls && pytest -q | tail -5")).words == "rule shell(pytest *)"
    assert not gate.decide(shell("pytest -q; rm a")).is_allowed
    assert not gate.decide(shell("pytest $(rm a)")).is_allowed
    assert not gate.decide(shell("pytest > /etc/x")).is_allowed
    assert not gate.decide(shell("pytester")).is_allowed
    assert not gate.decide(shell("PATH=. pytest")).is_allowed


def test_a_rule_about_a_command_holds_where_the_agent_works(folders: ProjectFolders) -> None:
    """In another folder the same words run something else; a rule may name it. `deny` holds in every folder."""
    gate = PermissionGate(folders, rules=rules(allow=["shell(make *)"]))
    assert gate.decide(shell(f"cd {folders.start} && make test")).is_allowed
    assert gate.decide(shell("cd . && make")).is_allowed
    for line in ("cd src && make", "cd src; make", "(cd src; make)", "cd . && cd src && make", "pushd src && make"):
        assert not gate.decide(shell(line)).is_allowed, line
    gate = PermissionGate(folders, rules=rules(allow=["shell(cd src && make *)"]))
    assert gate.decide(shell("cd src && make test")).words == "rule shell(cd src && make *)"
    assert not gate.decide(shell("make")).is_allowed
    assert not gate.decide(shell("cd src && pytest")).is_allowed
    gate = PermissionGate(folders, mode="yolo", rules=rules(allow=["shell(cd *)"], deny=["shell(make *)"]))
    assert not gate.decide(shell("cd src && make")).is_allowed
    gate.mode = "ask"
    assert gate.decide(shell("cd .. && ls")).words == "rule shell(cd *)"
    assert not gate.decide(shell("cd src && pytest")).is_allowed


def test_deny_counts_before_ask_and_ask_before_allow(folders: ProjectFolders) -> None:
    gate = PermissionGate(
        folders, mode="yolo",
        rules=rules(
            allow=["shell"], ask=["shell(git push *)"], deny=["shell(git push --force *)", "write_file(docs/*)"]
        ),
    )  # fmt: skip
    assert gate.decide(shell("rm -rf build")).is_allowed
    assert "nobody" in gate.decide(shell("git push")).words
    assert "the owner's rule shell(git push --force *)" in gate.decide(shell("git push --force")).words
    assert not gate.decide(call("write_file", path="docs/a.md", text="")).is_allowed
    assert not gate.decide(call("write_file", path="src/../docs/a.md", text="")).is_allowed


def test_no_rule_and_no_answer_lets_a_tool_write_the_home(folders: ProjectFolders, tmp_path: Path) -> None:
    gate = PermissionGate(
        folders, mode="yolo", rules=rules(allow=["shell", "write_file", "edit_file"]), on_ask=answer(*["always"] * 9)
    )
    for one in (
        call("write_file", path=str(tmp_path / "mind/config.toml"), text=""),
        call("edit_file", path="../mind/agents/default/agent.yaml", old="a", new="b"),
        shell(f"echo x > {tmp_path}/mind/config.toml"),
        shell(f"bash -c 'cp a {tmp_path}/mind/agents/default/system.md'"),
        shell("cd .. && rm -r mind/archive"),
    ):
        assert not gate.decide(one).is_allowed


@pytest.mark.parametrize("text", ["", "shell(", "shell)", "a b", "(x)"])
def test_a_rule_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ConfigFault):
        parse_rule(text)


@pytest.mark.parametrize("one", [shell("rm a"), shell("perdure forget m1"), call("write_file", path="a", text="")])
@pytest.mark.parametrize("on_ask", [None, answer(*["deny"] * 9)])
def test_a_call_that_did_not_run_is_no_failure_to_learn_from(
    one: CallEntry, on_ask: OnAsk | None, folders: ProjectFolders
) -> None:
    words = PermissionGate(folders, on_ask=on_ask).decide(one).words
    assert action_facts._NOT_RUN.match(words)
    assert fixes._NOT_RUN.match(words)


def test_rules_and_the_owner_decide_about_tools_of_mcp_servers(folders: ProjectFolders) -> None:
    """A `*` stands for the rest of a name; what only reads is what the owner says."""
    read, write = call("files__read-text"), call("files__write")
    gate = PermissionGate(folders, rules=rules(allow=["files__*"], deny=["files__write"]))
    assert (gate.decide(read).is_allowed, gate.decide(write).is_allowed) == (True, False)
    assert gate.decide(read).words == "rule files__*"
    assert PermissionGate(folders, rules=rules(allow=["files__read-text"])).decide(read).is_allowed
    believing = PermissionGate(folders, readers={"files__read-text"})
    assert (believing.decide(read).is_allowed, believing.decide(write).is_allowed) == (True, False)
    assert (
        not PermissionGate(folders, readers={"files__read-text"}, rules=rules(deny=["files__*"]))
        .decide(read)
        .is_allowed
    )


def test_always_holds_for_exactly_that_command(folders: ProjectFolders) -> None:
    """The same words in another folder, or behind another substitution, are another command."""
    gate = PermissionGate(folders, on_ask=answer("always", "always", "deny", "deny"))
    assert gate.decide(shell("make")).is_allowed
    assert gate.decide(shell("python $(echo a.py)")).is_allowed
    assert gate.decide(shell("make && python $(echo a.py)")).is_allowed
    assert not gate.decide(shell("cd src && make")).is_allowed
    assert not gate.decide(shell("python $(echo b.py)")).is_allowed
