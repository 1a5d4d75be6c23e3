"""A real IMAP server, Dovecot 2.3, in a folder of its own; it runs where it is installed (`dovecot` in PATH)."""

from __future__ import annotations

import getpass
import imaplib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from rig.mail_server import PASSWORD, USER

_CONFIG = """
base_dir = {folder}/run
state_dir = {folder}/run
log_path = {folder}/log
protocols = imap
listen = 127.0.0.1
ssl = {ssl}
{certificate}
disable_plaintext_auth = no
import_environment = LD_LIBRARY_PATH PATH HOME
default_internal_user = {user}
default_login_user = {user}
default_internal_group = {group}
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {port}
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
service anvil {{
  chroot =
}}
service stats {{
  chroot =
}}
passdb {{
  driver = static
  args = password={password}
}}
userdb {{
  driver = static
  args = uid={uid} gid={gid} home={folder}/mail/%u
}}
first_valid_uid = 1
mail_location = maildir:~/Maildir
"""


def find_dovecot() -> str:
    """Return the path of the program; "" where it is not installed."""
    return shutil.which("dovecot") or shutil.which("dovecot", path="/usr/sbin:/usr/local/sbin") or ""


class DovecotServer:
    """Use it as a context. `add` puts a mail into the INBOX of USER."""

    def __init__(self, certificate: Path | None = None) -> None:
        """certificate: a file with certificate and key, for STARTTLS; without it there is no TLS."""
        self.folder = Path(tempfile.mkdtemp(prefix="dovecot-", dir="/tmp"))  # its user must reach it
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        owner = pwd.getpwnam("nobody" if os.getuid() == 0 else getpass.getuser())
        (self.folder / "mail").mkdir()
        self.folder.chmod(0o755)
        os.chown(self.folder / "mail", owner.pw_uid, owner.pw_gid)
        group = subprocess.run(["id", "-gn", owner.pw_name], capture_output=True, text=True, check=True).stdout.strip()
        lines = ""
        if certificate:
            shutil.copy(certificate, self.folder / "cert.pem")
            lines = f"ssl_cert = <{self.folder}/cert.pem\nssl_key = <{self.folder}/cert.pem"
        (self.folder / "dovecot.conf").write_text(
            _CONFIG.format(
                folder=self.folder, port=self.port, user=owner.pw_name, group=group, uid=owner.pw_uid,
                gid=owner.pw_gid, password=PASSWORD, ssl="required" if certificate else "no", certificate=lines,
            )
        )  # fmt: skip

    def __enter__(self) -> DovecotServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        words = [find_dovecot(), "-F", "-c", str(self.folder / "dovecot.conf")]
        self._process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        ends_s = time.monotonic() + 20
        while True:
            try:
                imaplib.IMAP4("127.0.0.1", self.port, timeout=5).shutdown()
                return
            except (OSError, imaplib.IMAP4.error):
                assert time.monotonic() < ends_s, (self.folder / "log").read_text()
                time.sleep(0.1)

    def stop(self) -> None:
        """End it, and what it started."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(20)

    def log_in(self) -> imaplib.IMAP4:
        """Return a connection in the INBOX, as a person's mail program has one; without TLS only."""
        connection = imaplib.IMAP4("127.0.0.1", self.port, timeout=10)
        connection.login(USER, PASSWORD)
        connection.select("INBOX")
        return connection

    def add(self, raw: bytes) -> None:
        """Put a mail into the INBOX."""
        connection = self.log_in()
        status, _ = connection.append("INBOX", "", "", raw)
        assert status == "OK"
        connection.logout()

    def read_flags(self) -> list[str]:
        """Return the flags of each mail in the INBOX, in order."""
        connection = self.log_in()
        _, answer = connection.fetch("1:*", "(FLAGS)")
        connection.logout()
        return [part.decode() for part in answer if isinstance(part, bytes)]
