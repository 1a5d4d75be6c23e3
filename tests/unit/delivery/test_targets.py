"""The settings of targets: each kind says what it needs and what it does not read."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from perdure.config import DeliveryConfig
from perdure.delivery.targets import check_target
from perdure.errors import ConfigFault

GOOD = {
    "file": DeliveryConfig("file", folder="/notes"),
    "webhook": DeliveryConfig("webhook", url="https://example.org"),
    "mail": DeliveryConfig("mail", host="h", sender="a@b.c", recipients=("a@b.c",)),
    "telegram": DeliveryConfig("telegram", token_env="T", chat="1"),
}


@pytest.mark.parametrize("kind", GOOD)
def test_the_settings_that_are_needed_are_enough(kind: str, tmp_path: Path) -> None:
    check_target(tmp_path, "a", GOOD[kind])


@pytest.mark.parametrize(("config", "words"), [
    (DeliveryConfig(), "kind = ''"), (replace(GOOD["file"], kind="pigeon"), "pigeon"),
    (replace(GOOD["file"], folder=""), "folder must be"), (replace(GOOD["mail"], recipients=()), "recipients must be"),
    (replace(GOOD["file"], url="https://x"), "url has no meaning"), (replace(GOOD["webhook"], chat="1"), "chat has no"),
    (replace(GOOD["telegram"], plain=True), "plain has no meaning"), (replace(GOOD["file"], tries=0), "tries = 0"),
])  # fmt: skip
def test_settings_that_make_no_sense_are_named(config: DeliveryConfig, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigFault, match=words):
        check_target(tmp_path, "a", config)


def test_a_folder_in_the_home_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "home" / "agents")
    for folder in (tmp_path / "home", tmp_path / "home" / "archive", tmp_path / "link", tmp_path / "x" / ".." / "home"):
        with pytest.raises(ConfigFault, match="home of Perdure"):
            check_target(tmp_path / "home", "a", DeliveryConfig("file", folder=str(folder)))
