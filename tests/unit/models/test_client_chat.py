"""Installed clients as models: the command, what is read from their output, limits, and what stays outside."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from perdure.config import CapsConfig, ModelsConfig, RoleConfig, RolesConfig
from perdure.errors import (
    BudgetSpent,
    ConfigFault,
    ModelBusy,
    ModelLate,
    ModelRefused,
    ModelUnreachable,
    RuntimeMissing,
)
from perdure.models import client_chat, client_limits
from perdure.models.chat import ChatMessage, TokenUsage
from perdure.models.client_chat import CLAUDE, CODEX, ClientChat, build_command, read_output
from perdure.models.roles import Roles
from perdure.models.settings import ModelSettings
from rig.scripted_client import ScriptedClient, render

NOW = datetime(2026, 3, 1, 9, tzinfo=UTC)
ASKED = [ChatMessage("system", "Be short."), ChatMessage("user", "Who was it?")]
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}


def settings(client: str = CLAUDE, **fields: Any) -> ModelSettings:
    return ModelSettings(**{"name": f"{client}:m-1", "model": "m-1", "url": urlsplit(""), "timeout_s": 20.0} | fields)


@pytest.fixture(params=[CLAUDE, CODEX])
def script(request: pytest.FixtureRequest, tmp_path: Path) -> ScriptedClient:
    return ScriptedClient(request.param, tmp_path / "bin")


def chat(script: ScriptedClient, **fields: Any) -> ClientChat:
    return ClientChat(settings(script.client, program=str(script.program), **fields), now=lambda: NOW)


# commands -----------------------------------------------------------------------------------------------------


def test_claude_runs_without_tools_hooks_servers_and_a_session() -> None:
    line = build_command(CLAUDE, settings(effort="low"), ASKED, SCHEMA).arguments
    assert line[:4] == ["-p", "--output-format", "json", "--tools"] and line[4] == ""
    assert {"--strict-mcp-config", "--no-session-persistence", "--disable-slash-commands"} <= set(line)
    assert line[line.index("--setting-sources") + 1] == "" and '{"disableAllHooks": true}' in line
    assert line[line.index("--model") + 1] == "m-1" and line[line.index("--effort") + 1] == "low"
    assert json.loads(line[line.index("--json-schema") + 1]) == SCHEMA


def test_codex_runs_read_only_without_tools_hooks_settings_and_a_session() -> None:
    command = build_command(CODEX, settings(CODEX), ASKED, SCHEMA)
    line = command.arguments
    assert line[0] == "exec" and line[-1] == "-" and line[line.index("--sandbox") + 1] == "read-only"
    assert {"--ephemeral", "--ignore-user-config", "--ignore-rules", "--skip-git-repo-check"} <= set(line)
    assert {"features.hooks=false", "features.shell_tool=false", "features.memories=false"} <= set(line)
    assert json.loads(command.files["schema.json"]) == SCHEMA and command.files["system.md"] == "Be short."


def test_no_word_of_the_prompt_stands_on_the_command_line(script: ScriptedClient) -> None:
    script.say("Ada.")
    chat(script).reply(ASKED)
    (request,) = script.requests
    assert request["given"] == "Who was it?" and request["files"]["system.md"] == "Be short."
    assert not any("Who was" in word or "Be short" in word for word in request["arguments"])


def test_a_key_goes_to_a_client_only_if_the_settings_name_it(script: ScriptedClient, monkeypatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "SECRET_OF_MINE"):
        monkeypatch.setenv(name, "sk-other")
    for key in (None, "sk-mine"):
        script.say("Ada.")
        chat(script, key=key).reply(ASKED)
    plain, with_key = (request["environment"] for request in script.requests)
    assert "sk-other" not in plain.values() and "sk-other" not in with_key.values()
    assert "sk-mine" in with_key.values() and "SECRET_OF_MINE" not in plain


def test_the_folder_is_empty_and_goes(script: ScriptedClient) -> None:
    script.say("Ada.")
    chat(script).reply(ASKED)
    (request,) = script.requests
    assert set(request["files"]) == {"system.md"} and not Path(request["cwd"]).exists()


def test_an_open_schema_is_asked_for_in_words_of_codex() -> None:
    command = build_command(CODEX, settings(CODEX), ASKED, {"type": "object", "properties": {"a": {}}})
    assert '"properties": {"a": {}}' in command.prompt and "schema.json" not in command.files


def test_an_endpoint_of_your_own_is_given_to_the_client() -> None:
    own = {"url": urlsplit("http://127.0.0.1:8080/v1"), "key": "k"}
    assert build_command(CLAUDE, settings(**own), ASKED, None).variables["ANTHROPIC_BASE_URL"].endswith(":8080/v1")
    codex = build_command(CODEX, settings(CODEX, **own), ASKED, None)
    assert 'model_providers.perdure.base_url="http://127.0.0.1:8080/v1"' in codex.arguments
    assert "k" in codex.variables.values() and "k" not in codex.arguments


# outputs ------------------------------------------------------------------------------------------------------


def test_usage_is_what_the_client_reports(script: ScriptedClient) -> None:
    script.say("Ada.", n_cached=100)
    reply = chat(script).reply(ASKED)
    n_input = 540 if script.client == CLAUDE else 2150
    assert reply.usage == TokenUsage(n_input, 7, n_cache_read=100) and reply.is_usage_reported


def test_structured_output_of_claude_is_the_answer() -> None:
    row = {"type": "result", "subtype": "success", "result": "Done.", "structured_output": {"a": "b"}}
    output = read_output(CLAUDE, render([row]))
    assert output is not None and json.loads(output.text) == {"a": "b"} and output.usage is None


@pytest.mark.parametrize("raw", ["", "hello", "[]", "{", '{"type": "other"}', "\x00\xff", "null\n1\n"])
def test_output_that_is_none_is_a_refusal_in_its_words(script: ScriptedClient, raw: str) -> None:
    assert read_output(script.client, raw) is None
    script.print_next(raw, err="Invalid flag\n", status=2)
    with pytest.raises(ModelRefused, match="Invalid flag"):
        chat(script).reply(ASKED)


@pytest.mark.parametrize("usage", [{"input_tokens": "9"}, {"input_tokens": -1}, {"input_tokens": True}, None])
def test_counts_that_are_none_are_estimated(script: ScriptedClient, usage: Any) -> None:
    item = {"type": "item.completed", "item": {"type": "agent_message", "text": "Ada."}}
    done = [{"type": "result", "subtype": "success", "result": "Ada.", "usage": usage}]
    script.print_next(render(done if script.client == CLAUDE else [item, {"type": "turn.completed", "usage": usage}]))
    reply = chat(script).reply(ASKED)
    assert reply.text == "Ada." and not reply.is_usage_reported and reply.usage.n_input > 0


def test_a_refusal_is_told_without_the_key(script: ScriptedClient) -> None:
    script.fail("Failed to authenticate with sk-mine", status=401)
    with pytest.raises(ModelRefused, match=r"authenticate with \[key\]"):
        chat(script, key="sk-mine").reply(ASKED)


def test_a_failing_endpoint_is_busy() -> None:
    output = read_output(CODEX, render([{"type": "turn.failed", "error": {"message": "last status: 529 overloaded"}}]))
    assert output is not None and output.status == 529
    fault = client_chat.to_fault(CODEX, output, NOW)
    assert isinstance(fault, ModelBusy) and fault.free_at is None


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuntimeMissing, match="set `program`"):
        ClientChat(settings(program=str(tmp_path / "nowhere"))).reply(ASKED)


def test_a_program_that_cannot_start_or_is_killed_is_unreachable(tmp_path: Path) -> None:
    program = tmp_path / "claude"
    for text in ("#!/nowhere/interpreter\n", "#!/bin/sh\nkill -9 $$\n"):
        program.write_text(text)
        program.chmod(0o755)
        with pytest.raises(ModelUnreachable):
            ClientChat(settings(program=str(program))).reply(ASKED)


def test_a_client_that_is_late_ends_with_all_its_processes(tmp_path: Path) -> None:
    program, marker = tmp_path / "claude", tmp_path / "pid"
    program.write_text(f"#!/bin/sh\nsleep 60 &\necho $! > {marker}\nwait\n")
    program.chmod(0o755)
    with pytest.raises(ModelLate):
        ClientChat(settings(program=str(program))).reply(ASKED, timeout_s=0.5)
    ends_s = time.monotonic() + 5
    while is_alive(int(marker.read_text())) and time.monotonic() < ends_s:
        time.sleep(0.02)
    assert not is_alive(int(marker.read_text()))


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2] if Path(f"/proc/{pid}/stat").exists() else True


# limits -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "wait"),
    [
        ("Claude AI usage limit reached|1772359200", timedelta(hours=1)),  # 2026-03-01 10:00 UTC
        ("You've hit your session limit · resets 3pm (UTC)", timedelta(hours=6)),
        ("You've hit your weekly limit · resets 8:30am", timedelta(hours=23, minutes=30)),
        ("You've hit your limit · resets Mar 3 at 9am (Europe/Berlin)", timedelta(days=1, hours=23)),
        ("You've hit your usage limit. Try again in 3 days 2 hours 5 minutes.", timedelta(days=3, hours=2, minutes=5)),
        ("You've hit your usage limit. Try again at Mar 2nd, 2026 3:05 PM.", timedelta(days=1, hours=6, minutes=5)),
        ("Rate limit reached for gpt-5. Please try again in 20s.", client_limits.MIN_WAIT),
        ("usage limit, try again in 9999 days", client_limits.MAX_WAIT),
        ("usage limit reached|0000000001", client_limits.MIN_WAIT),
        ("usage limit resets 31:99pm (Nowhere/Land)", client_limits.DEFAULT_WAIT),
        ("You've hit your usage limit.", client_limits.DEFAULT_WAIT),
    ],
)
def test_the_end_of_a_limit_is_read_from_its_words(message: str, wait: timedelta) -> None:
    assert client_limits.is_limit(message)
    assert client_limits.find_free_time(message, NOW) - NOW == wait


@pytest.mark.parametrize("message", ["Invalid model name", "Please run /login", "prompt is too long", "no such file"])
def test_other_words_are_no_limit(message: str) -> None:
    assert not client_limits.is_limit(message)


def make_roles(home: Path, script: ScriptedClient, clock: list[datetime], **caps: int) -> Roles:
    miner = RoleConfig(provider=script.client, program=str(script.program), timeout_s=20)
    config = ModelsConfig(roles=RolesConfig(miner=miner), caps=CapsConfig(**caps))
    return Roles(home, config, mask=str, now=lambda: clock[0])


def test_no_call_is_made_until_a_limit_ends(tmp_path: Path, script: ScriptedClient) -> None:
    clock = [NOW]
    asked = make_roles(tmp_path, script, clock).get_chat("miner", job="mine")
    assert asked is not None and asked.name == f"{script.client}:default"
    script.fail("You've hit your usage limit. Try again in 2 hours.", status=429)
    with pytest.raises(ModelBusy):
        asked.reply(ASKED)
    clock[0] = NOW + timedelta(minutes=30)
    with pytest.raises(BudgetSpent, match="is at the limit of its subscription; available again"):
        make_roles(tmp_path, script, clock).get_chat("miner", job="mine").reply(ASKED)  # type: ignore[union-attr]
    assert len(script.requests) == 1
    clock[0] = datetime.now().astimezone() + timedelta(hours=3)
    script.say("Ada.")
    assert asked.reply(ASKED).text == "Ada."


def test_calls_of_clients_are_capped_by_day(tmp_path: Path, script: ScriptedClient) -> None:
    clock = [NOW]
    asked = make_roles(tmp_path, script, clock, day_client_calls=2).get_chat("miner", job="mine")
    assert asked is not None
    for _ in range(2):
        script.say("Ada.")
        asked.reply(ASKED)
    with pytest.raises(BudgetSpent, match="day_client_calls: 2 of 2 calls made; available again 2026-03-02 00:00"):
        asked.reply(ASKED)
    assert len(script.requests) == 2
    clock[0] = NOW + timedelta(days=1)
    script.say("Ada.")
    assert asked.reply(ASKED).text == "Ada."


def test_tokens_of_a_client_count_against_the_caps(tmp_path: Path, script: ScriptedClient) -> None:
    roles = make_roles(tmp_path, script, [NOW], day_tokens=9_000)
    asked = roles.get_chat("miner", job="mine")
    assert asked is not None
    script.say("Ada.")
    asked.reply(ASKED)
    n_reported = 547 if script.client == CLAUDE else 2157
    assert roles.meter.read_spending("mine")["day"].n_tokens == n_reported
    assert make_roles(tmp_path, script, [NOW], day_tokens=n_reported + 100).get_chat("miner", job="mine") is not None
    with pytest.raises(BudgetSpent, match="day_tokens"):
        make_roles(tmp_path, script, [NOW], day_tokens=n_reported + 100).get_chat("miner", job="mine").reply(ASKED)  # type: ignore[union-attr]


@pytest.mark.parametrize("role", ["helper", "resident"])
def test_a_client_is_refused_where_it_does_not_fit(tmp_path: Path, role: str) -> None:
    config = ModelsConfig(roles=RolesConfig(**{role: RoleConfig(provider=CLAUDE)}))
    with pytest.raises(ConfigFault, match="only for miner and summariser"):
        Roles(tmp_path, config, mask=str).get_chat(role, job="recall")


def test_a_subscription_costs_no_money(tmp_path: Path, script: ScriptedClient) -> None:
    miner = RoleConfig(provider=script.client, program=str(script.program))
    config = ModelsConfig(roles=RolesConfig(miner=miner), caps=CapsConfig(day_money=1.0))
    roles = Roles(tmp_path, config, mask=str)
    assert roles.get_chat("miner", job="mine") is not None
    assert roles.compute_cost("miner", TokenUsage(1000, 1000)) == 0.0
    assert roles.get_state("miner").missing == ""
