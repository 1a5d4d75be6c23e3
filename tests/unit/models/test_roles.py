"""Roles: which model the settings mean, and what stands before every call."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from perdure.access.redact import mask
from perdure.config import CapsConfig, ModelsConfig, PriceConfig, RoleConfig, RolesConfig
from perdure.errors import BadAnswer, BudgetSpent, ConfigFault, ModelFileMissing, ModelLate, ModelRefused, UsageError
from perdure.models.chat import ChatMessage, ChatReply, TokenUsage, ToolCall
from perdure.models.cost_meter import Spending
from perdure.models.roles import ROLES, Roles, read_model_settings
from perdure.testing import ScriptedChat

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
