"""Two homes of one owner exchange what they hold: over any wire, in any order, cut at any moment, they end the same."""

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest

import perdure
from perdure.archive import stage
from perdure.errors import (
    Busy,
    DiskFull,
    HomeMissing,
    OtherVersion,
    PerdureError,
    SyncFault,
    UsageError,
)
from perdure.service import sync_connect, sync_protocol
from perdure.service.sync_link import SyncLink
from perdure.service.sync_protocol import PROTOCOL

worlds = pytest.importorskip("benchmarks.exchange", reason="the benchmarks are not here (run from the checkout)")

N_WORLDS = 60
N_KILLS = 12


def take(home, *, session, data, low=0, **how):
    return home.capture(data, runtime="messages", session=session, from_offset=low, **how)


def sync(one, other):
    with sync_connect.connect_folder(one, other.path) as link:
        return sync_protocol.sync(one, link)


def is_same(*homes):
    """Whether the homes hold the same, archive and index, and are whole."""
    proven = [home.upkeep.verify() for home in homes]
    return (
        all(one.ok for one in proven)
        and len({one.digest for one in proven}) == 1
        and len({home.upkeep.digest() for home in homes}) == 1
    )


@pytest.fixture
def two(opened):
    return opened("one"), opened("two")


def test_sync_exchanges_what_is_missing_and_then_nothing(two, message):
    one, other = two
    for home, word in ((one, "marmalade"), (other, "chutney")):
        take(home, session=word, data=message("user", f"the {word} stands there", 0))
        home.remember(f"The {word} is on the shelf")
    done = sync(one, other)
    assert done.is_same and (done.here.n_runs, done.there.n_runs) == (1, 1)
    assert min(done.here.n_events, done.there.n_events) >= 1
    assert is_same(one, other)
    for home in two:
        assert len(home.search("stands").hits) == 2 and len(home.memories.list_memories()) == 2
    before = {path: path.read_bytes() for home in two for path in (home.path / "archive").rglob("*") if path.is_file()}
    again = sync(other, one)
    assert again == sync_protocol.SyncResult(is_same=True, n_rounds=1)
    assert before == {path: path.read_bytes() for path in before}


def test_only_the_owners_own_runs_and_journals_move(two, opened, message, grep):
    """A home of ada's holds things of bob's as well: they stay where they are, in both directions."""
    one, other = two
    for name in ("one", "two"):
        bob = opened(name, user="bob")
        take(bob, session="b", data=message("user", f"bob's words in {name}", 0))
        bob.remember(f"Bob keeps bees in {name}")
        bob.close()
    take(one, session="s", data=message("user", "ada's words", 0))
    assert sync(one, other).is_same
    assert grep(other.path, b"ada's words")
    assert not grep(one.path, b"bob's words in two") and not grep(other.path, b"bob's words in one")
    assert not grep(one.path, b"bees in two") and not grep(other.path, b"bees in one")


def test_homes_of_two_owners_do_not_sync(two):
    one, other = two
    (other.path / "config.toml").write_text('user = "bob"\n')
    with pytest.raises(UsageError, match="of bob: only homes of the same user"):
        sync(one, other)


@pytest.mark.parametrize("who", [0, 1])
def test_forgotten_words_are_removed_before_anything_moves(two, message, grep, who):
    """The forgotten words never leave the home that still has them: the tombstone goes first."""
    lines = message("user", "the anchor holds", 0) + message("user", "the marmalade is under the stair", 1)
    for home in two:
        take(home, session="s", data=lines)
    take(two[1 - who], session="copy", data=lines)
    (hit,) = two[who].search("marmalade").hits
    two[who].forgetting.apply(two[who].forgetting.plan([hit.turn_id]))
    seen = []
    send = SyncLink.send
    with sync_connect.connect_folder(two[0], two[1].path) as link:
        link.send = lambda do, body=b"", **more: (seen.append(body), send(link, do, body, **more))
        assert sync_protocol.sync(two[0], link).is_same
    assert not any(b"marmalade" in body for body in seen)
    for home in two:
        assert not grep(home.path, b"marmalade") and len(home.search("anchor").hits) == 2
    assert is_same(*two)


def test_later_floor_edit_counts_and_the_other_is_kept(two):
    one, other = two
    one.floor.write("core", "# House\n- first\n", by="owner")
    assert sync(one, other).is_same
    other.floor.write("core", "# House\n- of the other\n", by="owner")
    one.floor.write("core", "# House\n- of the one\n", by="owner")
    assert sync(one, other).is_same
    for home in two:
        assert home.floor.read("core") == "# House\n- of the one\n"
        texts = [home.floor.read_version("core", version.event) for version in home.floor.list_versions("core")]
        assert "# House\n- of the other\n" in texts
    other.floor.write("core", "# House\n- at last\n", by="owner")
    sync(one, other)
    assert one.floor.read("core") == "# House\n- at last\n"


def test_edit_after_a_sync_counts_despite_a_clock_years_behind(two):
    """The one's clock is eight years ahead; the other edits the page after the sync, and its edit counts in both."""
    one, other = two
    clock = worlds.Clock(worlds.START)
    with worlds.telling(clock):
        clock.at = worlds.START.replace(year=2034)
        one.floor.write("core", "# House\n- in the future\n", by="owner")
        clock.at = worlds.START
        sync(one, other)
        other.floor.write("core", "# House\n- afterwards\n", by="owner")
        assert sync(other, one).is_same
    assert one.floor.read("core") == other.floor.read("core") == "# House\n- afterwards\n"


def test_grown_journal_sends_only_new_events(two):
    one, other = two
    for n in range(50):
        one.remember(f"The number of the house in street {n} is {n + 100}")
    sync(one, other)
    one.remember("One more thing is known")
    sizes = []
    send = SyncLink.send
    with sync_connect.connect_folder(one, other.path) as link:
        link.send = lambda do, body=b"", **more: (sizes.append(len(body)), send(link, do, body, **more))
        assert sync_protocol.sync(one, link).is_same
    (path,) = one.journal().list_files()
    assert 0 < sum(sizes) < path.stat().st_size / 20


def test_dry_run_reports_the_plan_and_moves_nothing(two, message):
    one, other = two
    data = message("user", "anchor", 0)
    take(one, session="s", data=data)
    before = one.upkeep.verify().digest, other.upkeep.verify().digest
    with sync_connect.connect_folder(one, other.path) as link:
        here, there = sync_protocol.plan_sync(one, link)
    assert here == sync_protocol.SyncPlan() and (len(there.runs), there.n_bytes) == (1, len(data))
    assert (one.upkeep.verify().digest, other.upkeep.verify().digest) == before


def test_damaged_run_stays_and_the_rest_is_synced(two, message):
    one, other = two
    for n in range(3):
        take(other, session=f"s{n}", data=message("user", f"anchor whole {n}", n))
    (bad,) = (p for p in (other.path / "archive" / "runs").rglob("*.jsonl") if b"whole 1" in p.read_bytes())
    good = bad.read_bytes()
    bad.write_bytes(good.replace(b"whole", b"wholX"))
    done = sync(one, other)
    assert not done.is_same and done.here.n_runs == 2 and done.here.damaged == (bad.stem,)
    assert one.upkeep.verify().ok
    bad.write_bytes(good)
    assert sync(one, other).is_same and is_same(one, other)


def test_damaged_metadata_here_is_healed_by_the_other(two, message):
    one, other = two
    take(one, session="s", data=message("user", "anchor", 0))
    sync(one, other)
    (bad,) = (one.path / "archive" / "runs").rglob("*.metadata.json")
    bad.write_bytes(b"{}")
    assert not one.upkeep.verify().ok
    assert sync(one, other).is_same and is_same(one, other)


def test_sync_of_a_home_with_itself_is_refused(two, tmp_path):
    one, _ = two
    (tmp_path / "link").symlink_to(one.path)
    with pytest.raises(UsageError, match="the same home"), sync_connect.connect_folder(one, tmp_path / "link"):
        pass
    with pytest.raises(UsageError, match="the same home"), over_a_shell(one.path) as link:
        sync_protocol.sync(one, link)


def test_copied_home_gets_its_own_writer(two, message):
    """As a copied machine has it: even the place of the file is the same, and only the homes are two."""
    one, other = two
    take(one, session="s", data=message("user", "anchor", 0))
    one.remember("The anchor is in the shed")
    mine = json.loads((one.path / "writer.json").read_bytes())
    other.journal().get_writer()
    copy = other.path / "writer.json"
    copy.write_bytes(msgspec.json.encode({**mine, "inode": copy.stat().st_ino}))
    done = sync(one, other)
    assert done.is_copy and done.is_same
    other.remember("The chutney is in the cellar")
    assert sync(one, other).is_same and is_same(one, other)
    assert len(list(one.journal().root.iterdir())) == 2


def test_machines_and_grants_of_the_other_home_have_no_effect(two):
    one, other = two
    other.sharing.machines.register("ada", "phone")
    other.sharing.share("bob", "agent", "default")
    done = sync(one, other)
    assert done.is_same and (done.here.n_without_effect, done.there.n_without_effect) == (2, 0)
    assert one.sharing.machines.list_machines() == one.sharing.grants.list_given() == []
    assert len(other.sharing.machines.list_machines()) == len(other.sharing.grants.list_given()) == 1


def test_missing_or_newer_home_is_refused(two, tmp_path):
    one, other = two
    with pytest.raises(HomeMissing), sync_connect.connect_folder(one, tmp_path):
        pass
    (other.path / "archive" / "FORMAT").write_text("99\n")
    with pytest.raises(PerdureError, match="newer version of Perdure"):
        sync(one, other)


def test_one_sync_at_a_time(two, monkeypatch):
    monkeypatch.setattr(sync_protocol, "_LOCK_WAIT_S", 0.0)
    one, other = two
    with sync_protocol._open_stage(other), pytest.raises(Busy):
        sync(one, other)
    assert sync(one, other).is_same


def test_full_disk_changes_nothing_and_leaves_nothing(two, message, monkeypatch):
    one, other = two
    take(other, session="s", data=message("user", "anchor", 0))

    def full(*_):
        raise DiskFull("here")

    with monkeypatch.context() as patched:
        patched.setattr(stage.SyncStage, "put", full)
        with pytest.raises(DiskFull):
            sync(one, other)
    assert one.upkeep.verify().n_runs == 0
    assert not list((one.path / "cache" / "sync").rglob("*.jsonl"))
    assert sync(one, other).is_same


def test_full_disk_of_the_other_side_is_reported_as_such(two, message, monkeypatch):
    one, other = two
    take(one, session="s", data=b"".join(message("user", f"anchor {'x' * 5000} {n}", n) for n in range(400)))

    def full(*_):
        raise DiskFull("there")

    with monkeypatch.context() as patched:
        patched.setattr(stage.SyncStage, "put", full)
        with pytest.raises(DiskFull, match=str(other.path)):
            sync(one, other)
    assert sync(one, other).is_same and is_same(one, other)


# what is cut --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", [0, 1])
def test_interrupted_sync_changes_nothing_and_the_next_resumes(two, message, direction):
    """Ten runs are to move; the line breaks after six: no run is there, and the next sync sends four."""
    full, empty = two[direction], two[1 - direction]
    for n in range(10):
        take(full, session=f"s{n}", data=message("user", f"anchor {n}", n))
    one, other = two
    sent = []

    class Cut(Exception):
        pass

    with pytest.raises(Cut), sync_connect.connect_folder(one, other.path) as link:
        name = "send" if full is one else "receive"
        real = getattr(link, name)

        def cut(*args, **more):
            found = real(*args, **more)
            sent.append((found.do if found else args[0]) == "run")
            if sum(sent) == 7:
                link.flush()
                raise Cut
            return found

        setattr(link, name, cut)
        sync_protocol.sync(one, link)
    assert empty.upkeep.verify().n_runs == 0
    staged = len(stage.SyncStage(empty.path, "ada").load_runs())
    assert staged == 6
    moved = []
    send = SyncLink.send
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            SyncLink, "send", lambda link, do, *args, **more: (moved.append(do), send(link, do, *args, **more))
        )
        assert sync(one, other).is_same
    assert moved.count("run") == 4
    assert is_same(one, other) and empty.upkeep.verify().n_runs == 10
    assert stage.SyncStage(empty.path, "ada").load_runs() == {}


def test_remains_of_a_cut_sync_are_forgotten(two, message, grep):
    one, other = two
    lines = message("user", "the marmalade is under the stair", 0)
    take(one, session="s", data=lines)
    take(other, session="t", data=lines)
    (held,) = other.archive.ledger.list_runs()
    kept = stage.SyncStage(one.path, "ada")
    kept.prepare()
    kept.put(*other.archive.read_checked(held))
    (hit,) = one.search("marmalade").hits
    one.forgetting.apply(one.forgetting.plan([hit.turn_id]))
    assert grep(one.path, b"marmalade") == []


_SYNC = """
import sys
import perdure
from perdure.service import sync_connect, sync_protocol
with perdure.open(sys.argv[1], user="ada") as home:
    host = sync_connect.SshTarget("there", sys.argv[2])
    remote = [sys.executable, "-m", "perdure.surfaces.cli"]
    with sync_connect.connect_ssh(host, ssh=[sys.argv[3]], remote=remote) as link:
        print("ready", flush=True)
        sync_protocol.sync(home, link)
"""


@pytest.fixture(scope="module")
def shell_as_ssh(tmp_path_factory) -> Path:
    """A stand-in for ssh: it passes over the host, and runs the command in a shell of this machine."""
    path = tmp_path_factory.mktemp("ssh") / "ssh"
    path.write_text('#!/bin/sh\nshift\necho "Welcome to this machine"\nexec sh -c "$*"\n')
    path.chmod(0o755)
    return path


def over_a_shell(path: Path, command: str = ""):
    """A link to a home over a shell, as ssh would make one."""
    host = sync_connect.SshTarget("there", str(path))
    remote = [sys.executable, "-m", "perdure.surfaces.cli"]
    return sync_connect.connect_ssh(host, ssh=["sh", "-c", command or 'echo "Welcome"; exec sh -c "$1"'], remote=remote)


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["asking", "answering"])
def test_killed_at_any_moment_the_next_sync_ends_the_same(tmp_path, message, shell_as_ssh, victim):
    """SIGKILL strikes either side while 60 runs and some memories go each way; then one sync is let through."""
    for name in ("one", "two"):
        with perdure.open(tmp_path / name, user="ada") as home:
            (home.path / "config.toml").write_text('user = "ada"\n')
            for n in range(60):
                take(home, session=f"{name}{n}", data=message("user", f"anchor {n} of {name}", n))
            home.remember(f"The anchor is in {name}")
    chance = random.Random(8)
    n_struck, longest_s = 0, 0.05  # short at first: a quick machine ends a sync in less than 0.3 s
    for _ in range(N_KILLS):
        program = [sys.executable, "-c", _SYNC, str(tmp_path / "one"), str(tmp_path / "two"), str(shell_as_ssh)]
        asking = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
        assert asking.stdout and asking.stdout.readline() == b"ready\n"
        time.sleep(chance.random() * longest_s)
        if asking.poll() is None:
            n_struck, longest_s = n_struck + 1, longest_s * 1.5
            for pid in [asking.pid] if victim == "asking" else _children(asking.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        asking.wait(timeout=30)
        asking.stdout.close()
    assert n_struck
    with perdure.open(tmp_path / "one", user="ada") as one, perdure.open(tmp_path / "two", user="ada") as other:
        assert sync(one, other).is_same
        assert is_same(one, other)
        assert one.upkeep.verify().n_runs == 120 and len(one.memories.list_memories(every=True)) == 2


def _children(pid: int) -> list[int]:
    """The processes that a process started."""
    said = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in said.stdout.split()]


# what the other side may send ---------------------------------------------------------------------------------


def other_side(home, *frames):
    """What an exchange of a home makes of a side that says this, whatever it is asked."""
    theirs_reader, ours_writer = (os.fdopen(end, mode) for end, mode in zip(os.pipe(), ("rb", "wb"), strict=True))
    ours_reader, theirs_writer = (os.fdopen(end, mode) for end, mode in zip(os.pipe(), ("rb", "wb"), strict=True))

    def say():
        link = SyncLink(theirs_reader, theirs_writer, "asker")
        link.announce()
        for do, body, fields in frames:
            link.send(do, body, **fields)
        theirs_writer.close()

    there = threading.Thread(target=say)
    there.start()
    try:
        return sync_protocol.sync(home, SyncLink(ours_reader, ours_writer, "there"))
    finally:
        there.join()
        for stream in (theirs_reader, ours_reader, ours_writer):
            stream.close()


def greeting(**more):
    said = sync_protocol.Greeting(PROTOCOL, 1, "0.1.0", "ada", "w" + "0" * 16)
    return ("greeting", b"", msgspec.to_builtins(said) | more)


READY = ("ready", b"", {"is_copy": False})
END = ("end", b"", {})


def items(*found):
    return ("items", b"", {"items": list(found)})


@pytest.mark.parametrize(("protocol", "which"), [(PROTOCOL + 1, "newer"), (PROTOCOL - 1, "older")])
def test_another_version_is_named(two, protocol, which):
    with pytest.raises(OtherVersion, match=f"runs a {which} Perdure"):
        other_side(two[0], greeting(protocol=protocol))


@pytest.mark.parametrize(
    "name", ["../../../../tmp/x", "w0123456789abcdef/../../x.jsonl", "w0123456789abcdef/2026-13.jsonl", "/etc/passwd"]
)
def test_remote_name_never_becomes_a_path(two, name, tmp_path):
    one, _ = two
    one.journal().get_writer()
    before = set(tmp_path.rglob("*"))
    frames = [greeting(), READY, items((name, 5, "x")), END, ("lines", name.encode(), {"n_bytes": 5})]
    with pytest.raises(SyncFault, match="not the name of a journal"):
        other_side(one, *frames, ("part", b"line\n", {}), END)
    new = set(tmp_path.rglob("*")) - before
    assert all((one.path / "cache") in (path, *path.parents) for path in new) and "2026-13.jsonl" not in map(str, new)
    assert not list(one.path.rglob("x.jsonl"))


def a_run(home, message, **changed):
    """(metadata as bytes, stored bytes) of a run of another home, changed."""
    data = message("user", "anchor", 0)
    answer = take(home, session="s", data=data)
    run = home.archive.read_run(home.archive.get_entry(answer.run_id))
    fields = msgspec.to_builtins(run)
    for name, value in changed.items():
        if name in fields["source"]:
            fields["source"][name] = value
        else:
            fields[name] = value
    return msgspec.json.encode(fields), data


@pytest.mark.parametrize(
    "changed",
    [{"user": "bob"}, {"user": "../bob"}, {"run_id": "../../../x"}, {"run_id": "0" * 26}, {"session": "else"},
     {"from_offset": 5}, {"sha256": hashlib.sha256(b"").hexdigest()}, {"from_offset": -3}, {"to_offset": -3}],
)  # fmt: skip
def test_run_that_contradicts_its_metadata_is_refused(two, message, changed):
    one, other = two
    raw, stored = a_run(other, message, **changed)
    frames = [greeting(), READY, END, items(("0" * 26, "x", 5)), END]
    frames += [("run", raw, {"n_bytes": len(stored)}), ("part", stored, {}), END]
    found = other_side(one, *frames)
    assert len(found.here.damaged) == 1 and not found.is_same
    assert one.upkeep.verify().n_runs == 0 and not list((one.path / "archive").rglob("*.metadata.json"))


@pytest.mark.parametrize(
    "frames",
    [
        [("run", b"{}", {"n_bytes": 1 << 40})],
        [("run", b"{}", {"n_bytes": -1})],
        [("run", b"{}", {"n_bytes": "many"})],
        [("run", b"{}", {"n_bytes": 3}), ("part", b"1234", {})],
        [("run", b"{}", {"n_bytes": 3}), ("part", b"", {})],
        [("run", b"{}", {"n_bytes": 3}), END],
        [("what", b"", {})],
        [],
    ],
)
def test_side_that_breaks_the_protocol_is_rejected(two, frames):
    start = [greeting(), READY, END, items(("0" * 26, "x", 5)), END]
    with pytest.raises(SyncFault):
        other_side(two[0], *start, *frames)
    assert two[0].upkeep.verify().ok


def test_invalid_lists_are_refused(two):
    for wrong in (items(("a", "b", "c")), items(5), ("items", b"", {}), ("items", b"", {"items": {"a": 1}})):
        with pytest.raises(SyncFault, match="an invalid value"):
            other_side(two[0], greeting(), READY, wrong, END)


def test_remote_error_is_raised_as_its_own_class(two):
    with pytest.raises(Busy, match="there: the archive") as caught:
        other_side(two[0], greeting(), ("error", b"", {"code": "busy", "detail": "the archive"}))
    assert caught.value.exit_code == 5
    with pytest.raises(SyncFault, match="there: what"):
        other_side(two[0], greeting(), ("error", b"", {"code": "no-such", "detail": "what"}))


# over ssh -----------------------------------------------------------------------------------------------------


def perdure_command(*words, home, ssh=None, check=True):
    env = {**os.environ, "PERDURE_HOME": str(home), "NO_COLOR": "1", "PERDURE_SSH": str(ssh or "ssh")}
    program = [sys.executable, "-m", "perdure.surfaces.cli", *words]
    done = subprocess.run(program, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done


@pytest.fixture
def by_command(tmp_path, message):
    """Two homes of ada's that hold a run each."""
    for name in ("one", "two"):
        with perdure.open(tmp_path / name, user="ada") as home:
            (home.path / "config.toml").write_text('user = "ada"\n')
            take(home, session=name, data=message("user", f"anchor of {name}", 0))
    return tmp_path / "one", tmp_path / "two"


REMOTE = f"{sys.executable} -m perdure.surfaces.cli"


def test_over_a_shell_with_a_greeting(by_command, shell_as_ssh):
    one, two = by_command
    target = f"there:{two}"
    said = perdure_command("sync", target, "--remote", REMOTE, "--dry-run", home=one, ssh=shell_as_ssh).stdout
    assert "Would be copied here: 1 run" in said and "Would be copied there: 1 run" in said
    said = perdure_command("sync", target, "--remote", REMOTE, home=one, ssh=shell_as_ssh).stdout
    assert "Copied here: 1 run" in said and "Both homes hold the same." in said
    done = perdure_command("sync", target, "--remote", REMOTE, "--json", "--ssh", str(shell_as_ssh), home=one)
    answer = json.loads(done.stdout)["result"]
    assert answer["same"] and answer["here"]["n_runs"] == answer["there"]["n_runs"] == 0 and answer["rounds"] == 1
    with perdure.open(one, user="ada") as first, perdure.open(two, user="ada") as second:
        assert is_same(first, second)


def test_a_folder_by_the_command(by_command):
    one, two = by_command
    assert "Both homes hold the same." in perdure_command("sync", str(two), home=one).stdout
    new = one.parent / "new"
    (new).mkdir(mode=0o700)
    (new / "config.toml").write_text('user = "ada"\n')
    assert "Copied here: 2 runs" in perdure_command("sync", str(one), home=new).stdout


def test_damaged_remote_run_is_reported_with_status_1(by_command):
    one, two = by_command
    (bad,) = (two / "archive" / "runs").rglob("*.jsonl")
    bad.write_bytes(bad.read_bytes().replace(b"anchor", b"anchXr"))
    done = perdure_command("sync", str(two), home=one, check=False)
    assert done.returncode == 1 and bad.stem in done.stderr.replace("\n", "")
    assert "Copied there: 1 run" in done.stdout


@pytest.mark.parametrize(
    ("script", "said"),
    [("exit 255", "ssh could not connect"), ("exit 127", "--remote"), ("exit 2", "upgrade"),
     ("yes noise", "like a Perdure home")],
)  # fmt: skip
def test_command_without_a_home_behind_it_is_a_sync_fault(two, script, said):
    with pytest.raises(SyncFault, match=said), over_a_shell(two[1].path, script) as link:
        sync_protocol.sync(two[0], link)


def test_missing_home_over_a_shell_is_reported(two, tmp_path):
    with pytest.raises(HomeMissing, match="there: "), over_a_shell(tmp_path / "none") as link:
        sync_protocol.sync(two[0], link)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("target", ["-oProxyCommand=x", "-oProxyCommand=x:/home", "a b", "", "host:/a\nb"])
def test_invalid_target_is_refused(target):
    with pytest.raises(UsageError):
        sync_connect.parse_target(target)


@pytest.mark.parametrize(
    ("target", "place"),
    [("laptop", sync_connect.SshTarget("laptop")), ("me@laptop:", sync_connect.SshTarget("me@laptop")),
     ("me@laptop:/data/x:y", sync_connect.SshTarget("me@laptop", "/data/x:y")),
    ("laptop:b/it", sync_connect.SshTarget("laptop", "b/it")),
     ("me@[fe80::1%en0]:/x", sync_connect.SshTarget("me@[fe80::1%en0]", "/x")), ("./laptop", Path("laptop")),
     ("a/b:c", Path("a/b:c")), ("/x", Path("/x"))],
)  # fmt: skip
def test_a_target_is_a_folder_or_a_host(target, place):
    assert sync_connect.parse_target(target) == place


# worlds -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(N_WORLDS))
def test_homes_that_all_synced_are_equal_after_any_history(tmp_path, seed):
    """Three or four homes with clocks that are years apart and jump: captures, forks, rewritten transcripts, memories,
    floor edits, forgettings and packs in any order, some meetings on the way, then every pair once in a random order.
    """
    assert worlds.world(tmp_path, seed) == []


def test_a_world_can_end_wrong(tmp_path, monkeypatch):
    """The proof above proves something: with tombstones that do not travel, or runs that do not, it says so."""
    monkeypatch.setattr(sync_protocol, "list_lacking", lambda ours, theirs: [])
    assert any("digests" in wrong or "lost" in wrong for wrong in worlds.world(tmp_path / "a", 1))


def test_sync_keeps_the_manifest_true(two, message):
    """What came by sync is named when it is missing; what was forgotten elsewhere is not."""
    one, other = two
    for home, word in ((one, "marmalade"), (other, "chutney")):
        take(home, session=word, data=message("user", f"the {word} stands there", 0))
        home.remember(f"The {word} is on the shelf")
    assert sync(one, other).is_same
    one.forgetting.apply(one.forgetting.plan_by_query("marmalade stands"))
    assert sync(one, other).is_same
    assert one.upkeep.verify().findings == other.upkeep.verify().findings == []
    for name in ("runs", "journal"):
        shutil.rmtree(other.path / "archive" / name)
    problems = [finding.what.partition(" (")[0] for finding in other.upkeep.verify().findings]
    assert sorted(problems)[-2:] == ["the run is missing"] * 2 and len(problems) == 4


def test_forgetting_on_every_page_reaches_the_other_home(two, message, grep):
    one, other = two
    take(one, session="s", data=message("user", "We decided: the marmalade is under the stair", 0))
    one.floor.write("core", "- the marmalade again\n- tea is green\n")
    one.floor.add_card("Two jars of marmalade")
    assert sync(one, other).is_same and grep(other.path, b"marmalade")
    lines = one.forgetting.list_floor_lines("marmalade")
    memories = [memory.memory_id for memory in one.forgetting.memories_by_query("marmalade")]
    one.forgetting.apply(one.forgetting.plan_by_query("marmalade"), memories=memories, floor_lines=lines)
    assert sync(one, other).is_same
    assert grep(one.path, b"marmalade") == grep(other.path, b"marmalade") == []
    assert other.floor.read("core") == "- tea is green\n"
