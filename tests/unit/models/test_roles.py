"""Roles: which model the settings mean, and what stands before every call."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from perdure.access.redact import mask
from perdure.config import CapsConfig, ModelsConfig, PriceConfig, RoleConfig, RolesConfig
from perdure.errors import BadAnswer, BudgetSpent, ConfigFault, ModelFileMissing, ModelLate, ModelRefused, UsageError
from perdure.models.chat import ChatMessage, ChatReply, TokenUsage, ToolCall
from perdure.models.cost_meter import Spending
from perdure.models.roles import ROLES, Roles, find_effort, read_model_settings
from perdure.testing import ScriptedChat
from rig.model_server import ModelServer

NOW = datetime(2026, 12, 31, 12, tzinfo=UTC)
ASKED = [ChatMessage("user", "Which port?")]
MINER = RoleConfig("openai", "m-1", "http://127.0.0.1:9/v1")
KEYED = RoleConfig("anthropic", "m-2", key_env="PERDURE_TEST_KEY")


def roles(place: Path, *chats: tuple[str, Any], **settings: Any) -> Roles:
    return Roles(place, ModelsConfig(**settings), mask=mask, chats=dict(chats), now=lambda: NOW)


def test_missing_settings_give_no_model(tmp_path: Path) -> None:
    found = roles(tmp_path)
    assert [found.get_chat(role, job="x") for role in ROLES] == [None] * 4
    assert [found.get_state(role).provider for role in ROLES] == [""] * 4
    with pytest.raises(UsageError, match="'embedder'"):
        found.get_chat("embedder", job="x")


def test_each_role_has_its_own_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_TEST_KEY", "k")
    local = RoleConfig("gguf", "~/models/small.gguf")
    found = roles(tmp_path, roles=RolesConfig(miner=MINER, helper=local, summariser=KEYED))
    names = [chat.name for role in ("miner", "helper", "summariser") if (chat := found.get_chat(role, job="x"))]
    assert names == ["openai:m-1", "gguf:small.gguf", "anthropic:m-2"] and found.get_chat("resident", job="x") is None


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (RoleConfig("openia", "m"), r"miner\.provider = 'openia' \(known: anthropic, openai, gguf, claude-cli, "),
        (RoleConfig("openai", ""), r"miner\.model must be set"),
        (RoleConfig("openai", "m"), r"miner\.key_env must be set"),
        (RoleConfig("anthropic", "m", key_env="PERDURE_TEST_NO_KEY"), "the environment has no PERDURE_TEST_NO_KEY"),
        (RoleConfig("openai", "m", "ftp://x"), r"miner\.url = 'ftp://x'"),
        (RoleConfig("openai", "m", "http://u:p@x/v1"), r"miner\.url"),
        (RoleConfig("openai", "m", "http://far/v1", "PERDURE_TEST_KEY"), "the key would be sent unencrypted to far"),
        (RoleConfig("openai", "m", "http://x/v1", thinking="a lot"), r"miner\.thinking = 'a lot'"),
        (RoleConfig("openai", "m", "http://x/v1", max_output_tokens=0), r"miner\.max_output_tokens must be set"),
        (RoleConfig("openai", "m", "http://x/v1", timeout_s=0), r"miner\.timeout_s must be set"),
    ],
)
def test_invalid_role_is_refused(tmp_path: Path, monkeypatch, config: RoleConfig, said: str) -> None:
    monkeypatch.setenv("PERDURE_TEST_KEY", "k")
    found = roles(tmp_path, roles=RolesConfig(miner=config))
    with pytest.raises(ConfigFault, match=said):
        found.get_chat("miner", job="x")
    assert found.get_state("miner").missing.startswith("models.roles.miner.")


def test_missing_model_file_is_named_in_the_state_and_the_error(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    file = tmp_path / "small.gguf"
    found = roles(tmp_path, roles=RolesConfig(miner=RoleConfig("gguf", str(file))))
    assert found.get_state("miner").missing == f"models.roles.miner.model: there is no file {file}"
    chat = found.get_chat("miner", job="x")
    assert chat is not None
    with pytest.raises(ModelFileMissing, match=r"small\.gguf: .* Set `model`"):
        chat.reply(ASKED)
    file.touch()
    assert found.get_state("miner").missing == ""


def test_a_key_is_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_TEST_KEY", "sk-secret")
    settings = read_model_settings("miner", KEYED)
    assert settings.key == "sk-secret" and "sk-secret" not in repr(settings)
    assert settings.url.geturl() == "https://api.anthropic.com"


def test_secrets_are_masked_in_every_request(tmp_path: Path) -> None:
    fake = ScriptedChat()
    chat = roles(tmp_path, ("miner", fake)).get_chat("miner", job="x")
    assert chat is not None
    secret = "postgres://ada:tr0ub4dor@host/x"
    call = ToolCall("c1", "connect", {"urls": [secret], "n": 3})
    chat.reply(
        [
            ChatMessage("system", secret),
            ChatMessage("assistant", "", (call,)),
            ChatMessage("tool", f"\ud800 {secret}", call_id="c1"),
        ]
    )
    (question,) = fake.asked
    assert "tr0ub4dor" not in repr(question) and repr(question).count("[secret:password]") == 3
    assert question.messages[1].calls[0].input["n"] == 3 and question.messages[2].call_id == "c1"
    question.messages[2].text.encode()  # and half characters are gone


def test_every_call_is_recorded_whatever_its_outcome(tmp_path: Path) -> None:
    bad = BadAnswer("x")
    bad.usage = TokenUsage(30, 5)
    answers: list[Any] = [
        ChatReply("x", usage=TokenUsage(10, 2), model="m"),
        bad,
        ModelRefused("no"),
        ModelLate("m"),
        "late",
    ]
    fake = ScriptedChat(answers)
    found = roles(
        tmp_path, ("miner", fake), roles=RolesConfig(miner=MINER), prices={"m-1": PriceConfig(1_000_000.0, 2_000_000.0)}
    )
    chat = found.get_chat("miner", job="mine")
    assert chat is not None and chat.reply(ASKED).text == "x"
    assert found.meter.read_spending("mine")["job"] == Spending(1, 12, 14.0, 0)  # 10 at 1, 2 at 2
    for fault, n_tokens in ((BadAnswer, 47), (ModelRefused, 47)):
        with pytest.raises(fault):
            chat.reply(ASKED)
        assert found.meter.read_spending("mine")["job"].n_tokens == n_tokens
    with pytest.raises(ModelLate):
        chat.reply(ASKED)
    assert 47 < found.meter.read_spending("mine")["job"].n_tokens < 100  # what was asked may have been read
    with pytest.raises(ZeroDivisionError):
        chat.reply(ASKED, on_text=lambda _: 1 / 0)
    assert found.meter.read_spending("mine")["job"].n_calls == 5


def test_a_cap_stops_the_job_before_anything_is_asked(tmp_path: Path) -> None:
    fake = ScriptedChat()
    found = roles(tmp_path, ("miner", fake), caps=CapsConfig(job_tokens=5000))
    chat = found.get_chat("miner", job="mine")
    assert chat is not None
    chat.reply(ASKED)  # a role's 4,096 tokens of answer fit once
    found.meter.begin(chat._model_call, TokenUsage(1000), None, CapsConfig())  # type: ignore[attr-defined]
    with pytest.raises(BudgetSpent, match=r"models\.caps\.job_tokens"):
        chat.reply(ASKED)
    assert len(fake.asked) == 1
    other = found.get_chat("miner", job="consolidate")
    assert other is not None and other.reply(ASKED).text == "OK."


def test_a_cap_in_money_needs_a_price(tmp_path: Path) -> None:
    caps = CapsConfig(day_money=1)
    with pytest.raises(ConfigFault, match=r"models\.caps\.day_money: models\.prices has no price for m-1"):
        roles(tmp_path, roles=RolesConfig(miner=MINER), caps=caps).get_chat("miner", job="x")
    priced = roles(tmp_path, roles=RolesConfig(miner=MINER), caps=caps, prices={"m-1": PriceConfig(1.0, 1.0)})
    assert priced.get_chat("miner", job="x") is not None
    local = RolesConfig(miner=RoleConfig("gguf", "/x.gguf"))
    assert roles(tmp_path, roles=local, caps=caps).get_chat("miner", job="x") is not None


def test_effort_is_that_of_the_job_or_of_the_role(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """J25: what stands in the request of each job of one role. A job's own word wins, then the role's, then a default
    for models that are known to take one.
    """
    monkeypatch.setenv("PERDURE_TEST_KEY", "k")
    with ModelServer() as server:
        plain = RoleConfig("anthropic", "claude-sonnet-5", server.url)
        found = roles(
            tmp_path,
            roles=RolesConfig(miner=plain._replace(effort="high"), summariser=plain),
            effort={"diary": "max", "mine": "low"},
        )
        asked = [("miner", "mine"), ("miner", "other"), ("summariser", "diary"), ("summariser", "recent")]
        for role, job in asked:
            chat = found.get_chat(role, job=job)
            assert chat is not None
            chat.reply(ASKED)
        sent = [request.body.get("output_config") for request in server.requests]
    assert sent == [{"effort": "low"}, {"effort": "high"}, {"effort": "max"}, None]
    efforts = {(call.role, call.job): call.effort for call in found.meter.read_spending_by_job()}
    assert [efforts[names] for names in asked] == ["low", "high", "max", ""]


@pytest.mark.parametrize(
    ("role", "config", "effort"),
    [
        ("miner", RoleConfig("anthropic", "claude-sonnet-5"), "medium"),
        ("summariser", RoleConfig("anthropic", "claude-sonnet-5"), "low"),
        ("helper", RoleConfig("openai", "gpt-5.4-mini"), "low"),
        ("helper", RoleConfig("openai", "gpt-5.4-mini", thinking="off"), ""),
        ("resident", RoleConfig("anthropic", "claude-sonnet-5"), ""),
        ("miner", RoleConfig("anthropic", "claude-haiku-4-5"), ""),
        ("miner", RoleConfig("openai", "gpt-5.4", "http://127.0.0.1:9/v1"), ""),  # a gateway may refuse it
        ("miner", RoleConfig("anthropic", "claude-sonnet-5", effort="xhigh"), "xhigh"),
    ],
)
def test_default_effort_is_small_and_only_where_it_is_known(role: str, config: RoleConfig, effort: str) -> None:
    assert find_effort(role, config) == effort


def test_each_role_has_a_model_of_its_own_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """J26, J32: a large model that thinks talks, a cheap one that does not writes long texts."""
    with ModelServer() as server:
        talker = RoleConfig("anthropic", "large", server.url, thinking="on", max_output_tokens=16_000)
        writer = RoleConfig("anthropic", "cheap", server.url, thinking="off", max_output_tokens=30_000)
        found = roles(tmp_path, roles=RolesConfig(resident=talker, summariser=writer))
        for role in ("resident", "summariser"):
            chat = found.get_chat(role, job="x")
            assert chat is not None
            chat.reply(ASKED)
        first, second = (request.body for request in server.requests)
    assert (first["model"], first["thinking"], first["max_tokens"]) == ("large", {"type": "adaptive"}, 16_000)
    assert (second["model"], second["thinking"], second["max_tokens"]) == ("cheap", {"type": "disabled"}, 30_000)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (RoleConfig("anthropic", "m", thinking="on"), "at high effort set max_output_tokens to 12,000"),
        (RoleConfig("anthropic", "m", thinking="on", max_output_tokens=16_000), ""),
        (RoleConfig("anthropic", "m", thinking="on", effort="low"), ""),
        (RoleConfig("anthropic", "claude-sonnet-5"), "at medium effort set max_output_tokens to 7,000"),
        (RoleConfig("anthropic", "claude-sonnet-5", thinking="off"), ""),
        (RoleConfig("openai", "m", window_tokens=4000), "the whole window of 4,000 tokens"),
        (RoleConfig("openai", "m"), ""),
    ],
)
def test_a_budget_that_thoughts_would_eat_is_named(tmp_path: Path, config: RoleConfig, said: str) -> None:
    state = roles(tmp_path, roles=RolesConfig(miner=config)).get_state("miner")
    assert len(state.warnings) == bool(said) and said in "".join(state.warnings)


def test_the_window_is_that_of_the_settings_or_the_model(tmp_path: Path) -> None:
    narrow = RoleConfig("openai", "gpt-5.4", "http://127.0.0.1:9/v1", window_tokens=32_000)
    found = roles(
        tmp_path, ("helper", ScriptedChat(window_tokens=999)), roles=RolesConfig(miner=MINER, resident=narrow)
    )
    windows = [
        chat.window_tokens for role in ("miner", "resident", "helper") if (chat := found.get_chat(role, job="x"))
    ]
    assert windows == [128_000, 32_000, 999]
    assert found.get_state("resident").window_tokens == 32_000


def test_a_claude_reserves_more_than_the_estimate(tmp_path: Path) -> None:
    """Its tokenizer counts 1.4 to 1.8 times as many tokens."""
    reserved = {}
    for name in ("scripted:m", "anthropic:claude-sonnet-4", "anthropic:claude-sonnet-5"):
        found = roles(tmp_path / name, ("miner", ScriptedChat([ModelLate("m")], name=name)))
        chat = found.get_chat("miner", job="x")
        assert chat is not None
        with pytest.raises(ModelLate):
            chat.reply([ChatMessage("user", "word " * 1000)])
        reserved[name] = found.meter.read_spending("x")["job"].n_tokens
    plain, older, newer = reserved.values()
    assert (older, newer) == (math.ceil(1.4 * plain), math.ceil(1.8 * plain))
