"""Facts of action with real clients: where the fact stands in the request, that the prefix stays, that no call changes.

No client lets a hook speak to its model before a call without stopping the call: what Claude Code and Codex are told
before a tool runs stands beside its result, and the others are told with the result.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from pathlib import Path

import pytest

import perdure
from perdure.errors import IndexFault
from perdure.tool_turn import MAX_BLOCK_BYTES
from rig.clients import blocks, kept_prefix, main_requests
from rig.resident import ScriptedResident

BLOCK = "[perdure-recall 0000000000000000 begins]\nMARK-{n}-{kind}\n[perdure-recall 0000000000000000 ends]"
SHELL = {
    "claude-code": '@call Bash {{"command": "{}"}}',
    "codex": '@call exec_command {{"cmd": "{}"}}',
    "pi": '@call bash {{"command": "{}"}}',
    "gemini-cli": '@call run_shell_command {{"command": "{}"}}',
    "opencode": '@call bash {{"command": "{}", "description": "d"}}',
    "qwen-code": '@call run_shell_command {{"command": "{}", "is_background": false}}',
    "kimi-code": '@call Bash {{"command": "{}"}}',
}
READ = {
    "claude-code": '@call Read {{"file_path": "{}"}}',
    "pi": '@call read {{"path": "{}"}}',
    "gemini-cli": '@call read_file {{"file_path": "{}"}}',
    "opencode": '@call read {{"filePath": "{}"}}',
    "qwen-code": '@call read_file {{"file_path": "{}"}}',
}
PLACES = [  # client, model, (kind of the event, role of the piece that holds its mark) of a command that fails
    ("claude-code", "claude-sonnet-4-5", ("before-tool", "user"), ("after-tool", "user")),
    ("claude-code", "", ("before-tool", "system"), ("after-tool", "system")),
    ("codex", "", ("before-tool", "developer"), ("after-tool", "developer")),
    ("pi", "", ("after-tool", "tool")),
    ("gemini-cli", "", ("after-tool", "user")),
    ("opencode", "", ("after-tool", "tool")),
    ("qwen-code", "", ("after-tool", "tool")),
]


@pytest.mark.parametrize(("name", "model_name", "places"), [(name, model, rest) for name, model, *rest in PLACES])
def test_a_fact_stands_beside_the_result_and_the_prefix_stays(name, model_name, places, client, home, model) -> None:
    tested = client(name, model=model_name)
    (tested.project / "a.txt").write_text("words of a\n")
    calls = [SHELL[name].format("ls /no-such-folder && false"), SHELL[name].format("echo it-is-fine")]
    calls += [READ[name].format(tested.project / "a.txt")] if name in READ else []
    with ScriptedResident(home, BLOCK) as resident:
        done = tested.say("\n".join(["Go on.", *calls, "@say That is all."]))
    assert done.status == 0 and "That is all." in done.out, done
    events = [asked["event"] for asked in resident.asked if asked["event"]["kind"].endswith("-tool")]
    commands = [event["command"] for event in events]
    assert commands.count("ls /no-such-folder && false") == len(places)
    assert any(event["error"] and "no-such-folder" in event["error"] for event in events)
    sent = main_requests(model.requests)
    pieces = list(blocks(sent[-1]))
    for kind, role in places:
        assert any(role == piece_role and re.search(rf"MARK-\d+-{kind}", text) for piece_role, text in pieces), kind
    results = "\n".join(text for _, text in pieces)
    assert "it-is-fine" in results and (name not in READ or "words of a" in results)  # the calls ran as they were
    for before, after in itertools.pairwise(sent):
        n_kept, n_pieces = kept_prefix(before, after)
        assert n_kept == n_pieces


@pytest.mark.parametrize("asker", ["codex", "claude-code", "pi", "gemini-cli", "opencode", "qwen-code"])
def test_what_one_client_learned_another_is_told_at_its_call(asker, client, home: Path, model, serving) -> None:
    """A command fails in Claude Code, another form works, and the next client that repeats it reads which one did."""
    home.mkdir(mode=0o700)
    settings = '[hooks]\nlimit_ms = 4500\n[models.embedder]\nkind = "off"\n[live]\nrecall = false\n'
    (home / "config.toml").write_text(settings)  # a recalled script would be played by the model
    first, second = client("claude-code"), client(asker)
    script = first.project / "tools" / "tidecheck"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\necho 41 tides\n")
    script.chmod(0o755)
    serving(home)
    calls = [SHELL["claude-code"].format("tidecheck --all"), SHELL["claude-code"].format("tools/tidecheck --all")]
    assert first.say("\n".join(["Check the tides.", *calls, "@say All is well."])).status == 0
    wait_for_facts(home, 2)
    told: set[str] = set()
    for _ in range(3):  # a call that the resident home answers after 300 ms, on a busy machine, is told nothing
        n_before = len(model.requests)
        assert second.say(f"Check them.\n{SHELL[asker].format('tidecheck --all')}\n@say Seen.").status == 0
        body = json.dumps(main_requests(model.requests[n_before:])[-1])
        told = set(re.findall(r"`tidecheck --all` failed here.{0,200}?this worked: `tools/tidecheck --all`", body))
        if told:
            break
    (told_text,) = told
    assert "not found" in told_text and len(told_text.encode()) <= MAX_BLOCK_BYTES
    n_before = len(model.requests)
    done = second.say(f"And this?\n{SHELL[asker].format('echo nothing-known')}\n@say Seen.")
    assert done.status == 0, done
    assert "failed here" not in json.dumps(main_requests(model.requests[n_before:])[-1])


def test_kimi_is_told_nothing_at_a_call(client, home: Path, model) -> None:
    """Its hooks can only stop a call. So none of ours runs there, and the calls run as they were."""
    tested = client("kimi-code")
    calls = [SHELL["kimi-code"].format("ls /no-such-folder"), SHELL["kimi-code"].format("echo it-is-fine")]
    with ScriptedResident(home, BLOCK) as resident:
        done = tested.say("\n".join(["Go on.", *calls, "@say That is all."]))
    assert done.status == 0 and "That is all." in done.out, done
    assert [asked["event"]["kind"] for asked in resident.asked] == ["start", "prompt"]
    assert "it-is-fine" in json.dumps(main_requests(model.requests)[-1])


def wait_for_facts(home: Path, n_wanted: int) -> None:
    """Wait until the resident home has derived so many facts of commands."""
    ends_s = time.monotonic() + 30
    while True:
        with perdure.open(home, user="tester", read_only=True) as opened:
            try:
                rows = opened.index().select("SELECT count(*) FROM fact WHERE kind IN ('failed', 'worked', 'returned')")
            except IndexFault:
                rows = [(0,)]
        if rows[0][0] >= n_wanted:
            return
        assert time.monotonic() < ends_s, rows
        time.sleep(0.2)
