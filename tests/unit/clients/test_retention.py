"""How long clients keep their transcripts, by their settings."""

import json

import pytest

from perdure.clients import retention, setup


def read(client, settings, tmp_path):
    path = setup.find_client_settings(client, tmp_path, {}.get)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(settings if isinstance(settings, str) else json.dumps(settings))
    return retention.read_retention(client, tmp_path, {}.get)


@pytest.mark.parametrize("days", [None, 0, -1, True, "365"])
def test_claude_code_falls_back_to_thirty_days(days, tmp_path):
    found = read("claude-code", {} if days is None else {"cleanupPeriodDays": days}, tmp_path)
    assert (found.days, found.is_default) == (30, True)


def test_settings_of_a_person_count(tmp_path):
    claude = read("claude-code", {"cleanupPeriodDays": 365}, tmp_path)
    assert (claude.days, claude.is_default, claude.setting) == (365, False, "cleanupPeriodDays")
    gemini = read("gemini-cli", {"general": {"sessionRetention": {"maxAge": "12h", "maxCount": 50}}}, tmp_path)
    assert (gemini.days, gemini.is_default, gemini.max_sessions) == (0.5, False, 50)
    switched_off = read("gemini-cli", {"general": {"sessionRetention": {"enabled": False}}}, tmp_path)
    assert switched_off.days is None and not switched_off.is_default


@pytest.mark.parametrize("settings", ["not json", "[]", '{"general": []}', '{"general": {"sessionRetention": 7}}'])
def test_unreadable_settings_mean_the_default(settings, tmp_path):
    assert read("gemini-cli", settings, tmp_path).days == 30


def test_every_client_that_can_be_set_up_is_known(tmp_path):
    assert set(retention.SOURCES) == set(setup.CLIENTS)
    for client in setup.CLIENTS:
        found = retention.read_retention(client, tmp_path, {}.get)
        assert found.days == (30 if client in ("claude-code", "gemini-cli") else None), client
    with pytest.raises(KeyError):
        retention.read_retention("nobody", tmp_path, {}.get)
