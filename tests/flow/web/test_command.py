"""`perdure page`: who may make a link, where the page is answered, and that it stays there."""

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest

from perdure.config import ServerConfig
from perdure.service import lock
from perdure.surfaces.web import listener


class Shell:
    """Commands of one home, each a process of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.env = {**os.environ, "PERDURE_HOME": str(home), "NO_COLOR": "1"}

    def __call__(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, "-m", "perdure.surfaces.cli", *words]
        return subprocess.run(program, env=self.env, capture_output=True, text=True, timeout=120, check=check)

    def page(self) -> str:
        return str(json.loads(self("page", "--json").stdout)["result"]["page"])


@pytest.fixture
def shell(tmp_path):
    found = [Shell(tmp_path / "home"), Shell(tmp_path / "other")]
    yield found[0], found[1]
    for one in found:
        one("serve", "--stop", check=False)


def read(address: str) -> str:
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with opener.open(address, timeout=30) as answer:
        return answer.read().decode()


def test_command_serves_the_home_at_a_stable_address(shell):
    one, other = shell
    assert lock.find_resident(one.home) is None
    first = one.page()
    assert first.startswith("http://127.0.0.1:") and ">Home</h1>" in read(first)
    there = json.loads(one("page", "--at", "/search?q=port", "--json").stdout)["result"]["page"]
    assert 'value="port"' in read(there)
    assert one("page", "--at", "search", check=False).returncode == 2
    place = first.partition("/enter")[0]
    assert other.page().partition("/enter")[0] != place  # another home, another address
    one("serve", "--stop")
    said = json.loads(one("serve", "--detach", "--json").stdout)["result"]
    assert said["http"] == place  # without being asked again
    assert "switch the page off" in one("page", "--help").stdout.lower().replace("\n", " ")
    assert one("page", "--off").returncode == 0 and not listener.read_address(one.home)
    one("serve", "--stop")
    assert json.loads(one("serve", "--detach", "--json").stdout)["result"]["http"] == ""


def test_unopened_page_starts_no_listener(shell):
    one, _ = shell
    assert json.loads(one("serve", "--detach", "--json").stdout)["result"]["http"] == ""
    assert not (one.home / "run" / "http.db").exists()


def test_page_without_its_packages_names_what_to_install(shell):
    one, _ = shell
    one.env["PYTHONPATH"] = os.pathsep.join([str(one.home.parent / "hidden"), os.environ.get("PYTHONPATH", "")])
    hidden = one.home.parent / "hidden" / "starlette"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ModuleNotFoundError('no starlette', name='starlette')\n")
    failed = one("page", check=False)
    assert failed.returncode and "pip install 'perdure[server]'" in failed.stderr and "Traceback" not in failed.stderr


def test_home_without_page_packages_is_still_served(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "page").write_text(listener.DEFAULT_ADDRESS)
    monkeypatch.setitem(sys.modules, "perdure.surfaces.http.server", None)
    config = SimpleNamespace(server=ServerConfig())
    assert listener.Listener(SimpleNamespace(home=SimpleNamespace(path=tmp_path, config=config))).start() == ""


def test_joined_machine_is_sent_to_its_remote_home(shell):
    one, _ = shell
    one.home.mkdir(mode=0o700)
    (one.home / "config.toml").write_text('[remote]\nurl = "https://home.example:8443"\n')
    assert one("page").stdout.strip() == "https://home.example:8443/enter"
