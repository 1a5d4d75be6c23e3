"""Settings: every mistake is an error that names the setting."""

import pytest

from perdure import config
from perdure.errors import ConfigFault


def load(home, text):
    (home / "config.toml").write_text(text, encoding="utf-8")
    return config.load(home)


def test_defaults(tmp_path):
    found = config.load(tmp_path)
    assert found.user and found.machine and found.agent == "default"
    assert found.capture.exclude == () and found.archive.pack_after_days == 30
    assert found.capture.outbox_alarm_bytes == 256_000_000 and found.capture.outbox_alarm_age_s == 86400


def test_everything_set(tmp_path):
    found = load(
        tmp_path,
        'user = "ada"\nmachine = "box"\nagent = "jarvis"\n[capture]\nexclude = ["~/x"]\noutbox_alarm_bytes = 1\n'
        "outbox_alarm_age_s = 2\n[archive]\npack_after_days = 0\n",
    )
    assert (found.user, found.machine, found.agent) == ("ada", "box", "jarvis")
    assert found.capture == config.CaptureConfig(("~/x",), 1, 2)
    assert found.archive.pack_after_days == 0


def test_the_embedder_set(tmp_path):
    found = load(
        tmp_path, '[models.embedder]\nkind = "ollama"\ndimension = 4096\nquery_prefix = "Instruct: x\\nQuery: "\n'
    )
    assert found.models.embedder == config.EmbedderConfig(
        kind="ollama", dimension=4096, query_prefix="Instruct: x\nQuery: "
    )
    assert config.load(tmp_path / "none").models == config.ModelsConfig()


@pytest.mark.parametrize(
    ("text", "named"),
    [
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


def test_what_is_no_text(tmp_path):
    (tmp_path / "config.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigFault, match=r"config\.toml"):
        config.load(tmp_path)


def test_a_config_that_cannot_be_read(tmp_path):
    (tmp_path / "config.toml").mkdir()
    with pytest.raises(ConfigFault, match=r"config\.toml"):
        config.load(tmp_path)


def test_home_path(tmp_path):
    assert config.home_path(tmp_path / "a") == tmp_path / "a"
    assert config.home_path("~/x") == config.user_home() / "x"
    assert config.home_path("rel").is_absolute()
