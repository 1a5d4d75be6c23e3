"""Settings: every mistake is an error that names the setting."""

import pytest

from perdure import config
from perdure.errors import ConfigFault


def load(home, text):
    (home / "config.toml").write_text(text, encoding="utf-8")
    return config.load(home)


def test_missing_file_gives_the_defaults(tmp_path):
    found = config.load(tmp_path)
    assert found.user and found.machine and found.agent == "default"
    assert found.capture.exclude == () and found.archive.pack_after_days == 30
    assert found.capture.outbox_alarm_bytes == 256_000_000 and found.capture.outbox_alarm_age_s == 86400


def test_every_setting_is_read(tmp_path):
    found = load(
        tmp_path,
        'user = "ada"\nmachine = "box"\nagent = "jarvis"\n[capture]\nexclude = ["~/x"]\noutbox_alarm_bytes = 1\n'
        "outbox_alarm_age_s = 2\n[archive]\npack_after_days = 0\n",
    )
    assert (found.user, found.machine, found.agent) == ("ada", "box", "jarvis")
    assert found.capture == config.CaptureConfig(("~/x",), 1, 2)
    assert found.archive.pack_after_days == 0


def test_embedder_settings_are_read(tmp_path):
    found = load(
        tmp_path, '[models.embedder]\nkind = "ollama"\ndimension = 4096\nquery_prefix = "Instruct: x\\nQuery: "\n'
    )
    assert found.models.embedder == config.EmbedderConfig(
        kind="ollama", dimension=4096, query_prefix="Instruct: x\nQuery: "
    )
    assert config.load(tmp_path / "none").models == config.ModelsConfig()


def test_model_settings_are_read(tmp_path):
    found = load(
        tmp_path,
        '[models.roles.miner]\nprovider = "anthropic"\nmodel = "m"\nkey_env = "K"\nmax_output_tokens = 9\n'
        '[models.prices."m"]\ninput = 3\noutput = 15.5\n[models.caps]\nday_tokens = 5\nmonth_money = 20\n',
    ).models
    assert found.roles.miner == config.RoleConfig("anthropic", "m", key_env="K", max_output_tokens=9)
    assert found.roles.helper == config.RoleConfig() and found.roles.helper.provider == ""
    assert found.prices == {"m": config.PriceConfig(3.0, 15.5)}
    assert found.caps == config.CapsConfig(day_tokens=5, month_money=20.0)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[models.roles.mine]\nmodel = 'x'", "models.roles.mine"),
        ("[models.roles.miner]\nmodle = 'x'", "models.roles.miner.modle"),
        ("[models.roles]\nminer = 'x'", "models.roles.miner"),
        ("[models.prices.m]\ninptu = 1", "models.prices.m.inptu"),
        ("[models.prices.m]\ninput = -1", "models.prices.m.input"),
        ("[models.prices.m]\ninput = inf", "models.prices.m.input"),
        ("[models.prices.m]\ninput = true", "models.prices.m.input"),
        ("[models.prices]\nm = 3", "models.prices.m"),
        ("[models]\nprices = 3", "models.prices"),
        ("[models.caps]\nday_tokens = 1.5", "models.caps.day_tokens"),
        ("[models.caps]\nday_money = nan", "models.caps.day_money"),
        ("[models.embedder]\nkindd = 1", "models.embedder.kindd"),
        ("[models.embedder]\nthreads = -1", "models.embedder.threads"),
        ('models = "minilm"', "models"),
        ('exlude = ["x"]', "exlude"),
        ('[capture]\nexcludes = ["x"]', "capture.excludes"),
        ('[capture]\nexclude = "x"', "capture.exclude"),
        ("[capture]\nexclude = [1]", "capture.exclude"),
        ("[archive]\npack_after_days = -1", "archive.pack_after_days"),
        ("[archive]\npack_after_days = true", "archive.pack_after_days"),
        ("[archive]\npack_after_days = 1.5", "archive.pack_after_days"),
        ('[archive]\npack_after_days = "1"', "archive.pack_after_days"),
        ("capture = 5", "capture"),
        ("user = 5", "user"),
        ('user = "a/b"', "user"),
        ("user = {}", "user"),
        ("user = ", "config.toml"),
        ("\ufeff[", "config.toml"),
    ],
)
def test_mistakes_are_named(tmp_path, text, named):
    with pytest.raises(ConfigFault) as caught:
        load(tmp_path, text)
    assert named in str(caught.value)


def test_config_that_is_not_utf8_is_refused(tmp_path):
    (tmp_path / "config.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigFault, match=r"config\.toml"):
        config.load(tmp_path)


def test_a_config_that_cannot_be_read(tmp_path):
    (tmp_path / "config.toml").mkdir()
    with pytest.raises(ConfigFault, match=r"config\.toml"):
        config.load(tmp_path)


def test_home_path_is_absolute_and_reads_the_environment(tmp_path):
    assert config.find_home_path(tmp_path / "a") == tmp_path / "a"
    assert config.find_home_path("~/x") == config.find_user_home() / "x"
    assert config.find_home_path("rel").is_absolute()
