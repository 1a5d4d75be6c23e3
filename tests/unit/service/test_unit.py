import os
import plistlib
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.errors import UnsupportedPlatform, UsageError
from perdure.service.unit import WATCHDOG_S, describe_unit, install, report_alive, uninstall

HOME = Path("/home/ada/my memory/100%")


def test_systemd_unit_quotes_special_characters():
    found = describe_unit("linux", Path("/home/ada"), HOME, "/usr/bin/python3")
    assert found.path == Path("/home/ada/.config/systemd/user/perdure.service")
    line = 'ExecStart="/usr/bin/python3" "-m" "perdure.surfaces.cli" "serve" "--home" "/home/ada/my memory/100%%"\n'
    assert line in found.content
    assert "Restart=on-failure" in found.content


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
def test_systemd_finds_no_fault_in_its_unit(tmp_path):
    path = tmp_path / "perdure.service"
    path.write_text(describe_unit("linux", tmp_path, HOME, sys.executable).content)
    path.chmod(0o644)  # whatever the mask of this process is: systemd warns of a file that everybody may write
    command = ["systemd-analyze", "verify", "--user", "--man=no", str(path)]
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    run = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert "perdure.service" not in run.stderr, run.stderr


def test_a_launchd_agent_is_a_property_list():
    found = describe_unit("darwin", Path("/Users/ada"), Path("/Users/ada/a & b"), "/usr/bin/python3")
    body = plistlib.loads(found.content.encode())
    assert body["ProgramArguments"][-2:] == ["--home", "/Users/ada/a & b"]
    assert body["RunAtLoad"] is True


def test_sign_of_life_reaches_the_watchdog(tmp_path, monkeypatch):
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    report_alive()  # nothing listens
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        report_alive()
        assert systemd.recv(100) == b"WATCHDOG=1"
    report_alive()  # it listens no more
    assert f"NotifyAccess=main\nWatchdogSec={WATCHDOG_S}\n" in describe_unit("linux", tmp_path, HOME, "py").content


def test_installing_writes_the_file_and_then_runs_the_tool(tmp_path):
    ran = []
    found = describe_unit("linux", tmp_path, HOME, "python3")

    def run(command):
        ran.append((tuple(command), found.path.exists()))
        return 0

    assert install(found, run) == []
    assert found.path.read_text() == found.content
    assert ran == [(command, True) for command in found.load_commands]
    ran.clear()
    assert uninstall(found, run) == []
    assert ran == [(found.unload_commands[0], True)]
    assert not found.path.exists()


def test_a_tool_that_fails_is_named(tmp_path):
    found = describe_unit("linux", tmp_path, HOME, "python3")
    assert install(found, lambda _: 1) == list(found.load_commands)


def test_unsupported_path_or_platform_is_refused():
    with pytest.raises(UsageError):
        describe_unit("linux", Path("/h"), Path("/h/two\nlines"), "python3")
    with pytest.raises(UnsupportedPlatform):
        describe_unit("sunos5", Path("/h"), HOME, "python3")
