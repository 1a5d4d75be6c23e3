"""The settings of targets: each kind says what it needs and what it does not read."""

import subprocess
import sys
from pathlib import Path

import pytest

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
    (DeliveryConfig(), "kind = ''"), (GOOD["file"]._replace(kind="pigeon"), "pigeon"),
    (GOOD["file"]._replace(folder=""), "folder must be"), (GOOD["mail"]._replace(recipients=()), "recipients must be"),
    (GOOD["file"]._replace(url="https://x"), "url has no meaning"), (GOOD["webhook"]._replace(chat="1"), "chat has no"),
    (GOOD["telegram"]._replace(plain=True), "plain has no meaning"), (GOOD["file"]._replace(tries=0), "tries = 0"),
])  # fmt: skip
def test_settings_that_make_no_sense_are_named(config: DeliveryConfig, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigFault, match=words):
        check_target(tmp_path, "a", config)


def test_a_folder_in_the_home_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "home" / "agents")
    for folder in (tmp_path / "home", tmp_path / "home" / "archive", tmp_path / "link", tmp_path / "x" / ".." / "home"):
        with pytest.raises(ConfigFault, match="home of Perdure"):
            check_target(tmp_path / "home", "a", DeliveryConfig("file", folder=str(folder)))


def test_a_resident_home_loads_no_library_for_what_it_may_never_send_or_draw():
    code = "import sys; import perdure.surfaces.cli.serve_home; "
    code += "print([name for name in ('email', 'http.client', 'ssl', 'rich', 'html') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
