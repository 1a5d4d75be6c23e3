"""Backup, restore and verify: proven by digest; damage is named, with what to do about it."""

import shutil
import tarfile
from pathlib import Path

import pytest

from perdure.archive import verify
from perdure.errors import ArchiveFault, UsageError
from perdure.upkeep import restore


@pytest.fixture
def full(home, message):
    """A home with loose and packed runs, events, settings and switches."""
    home.capture(message("user", "anchor one", 0), runtime="messages", session="s")
    home.upkeep.pack(idle_days=0)
    home.capture(
        message("user", "anchor two", 1) + message("user", "to forget entirely", 2), runtime="messages", session="t"
    )
    (hit,) = home.search("entirely").hits
    home.forgetting.apply(home.forgetting.plan([hit.turn_id]))
    (home.path / "config.toml").write_text('agent = "jarvis"\n')
    home.captures.mark_incognito("messages", "secret")
    return home


def test_backup_and_restore_give_the_same_home(full, opened, tmp_path):
    before = full.upkeep.digest()
    n_bytes, digest = full.upkeep.backup(tmp_path / "b.tar.zst")
    assert (tmp_path / "b.tar.zst").stat().st_size == n_bytes
    assert (tmp_path / "b.tar.zst").stat().st_mode & 0o777 == 0o600
    found = restore(tmp_path / "b.tar.zst", tmp_path / "new")
    assert found.ok and found.digest == digest == full.upkeep.verify().digest
    again = opened("new")
    assert again.upkeep.digest() == before and again.config.agent == "jarvis"
    assert next(hit.text for hit in again.search("anchor two").hits) == "anchor two"
    assert again.journal().get_writer() != full.journal().get_writer()
    for path in (tmp_path / "new", *(tmp_path / "new").rglob("*")):
        assert path.is_symlink() or path.stat().st_mode & 0o077 == 0, path
    from perdure.capture import policy

    assert policy.is_incognito(again.path, full.user, "messages", "secret")


@pytest.mark.parametrize("is_old", [False, True])
def test_restored_backup_keeps_machines_and_grants(full, opened, tmp_path, is_old, monkeypatch):
    """Also out of a backup that lists no writers, as earlier versions made it."""
    full.sharing.machines.register("ada", "phone")
    full.sharing.share("bob", "agent", "default")
    if is_old:
        monkeypatch.setattr(verify, "_KEPT", tuple(name for name in verify._KEPT if name != "writers"))
    full.upkeep.backup(tmp_path / "b")
    restore(tmp_path / "b", tmp_path / "new")
    again = opened("new")
    assert len(again.sharing.machines.list_machines()) == len(again.sharing.grants.list_given()) == 1
    again.sharing.machines.register("ada", "desk")  # by a writer of its own
    assert len(again.sharing.machines.list_machines()) == 2


def test_backup_includes_the_outbox(full, opened, message, tmp_path):
    from perdure.types import Origin

    full.captures.enqueue(
        Origin("messages", "late", "late"), message("user", "anchor late", 9), from_offset=0, path=None
    )
    full.upkeep.backup(tmp_path / "b")
    restore(tmp_path / "b", tmp_path / "new")
    again = opened("new")
    assert len(again.search("late").hits) == 1


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_truncated_backup_is_refused_and_leaves_nothing(full, tmp_path, share):
    full.upkeep.backup(tmp_path / "b")
    raw = (tmp_path / "b").read_bytes()
    (tmp_path / "b").write_bytes(raw[: int(len(raw) * share)])
    with pytest.raises(ArchiveFault):
        restore(tmp_path / "b", tmp_path / "new")
    assert not (tmp_path / "new").exists() or list((tmp_path / "new").iterdir()) == []


def test_a_changed_backup_is_refused(full, tmp_path):
    """Packed again with one run changed: the digest inside does not fit any more."""
    full.upkeep.backup(tmp_path / "b")
    restore(tmp_path / "b", tmp_path / "other")
    (blob,) = (tmp_path / "other" / "archive" / "runs").rglob("*.jsonl")
    blob.write_bytes(blob.read_bytes().replace(b"anchor", b"anchXr"))
    from perdure.archive import verify

    verify.write_backup(tmp_path / "other", tmp_path / "c", full.upkeep.verify().digest)
    with pytest.raises(ArchiveFault):
        restore(tmp_path / "c", tmp_path / "new")


def test_file_that_is_no_backup_is_refused(full, tmp_path):
    (tmp_path / "junk").write_bytes(b"hello")
    with pytest.raises(ArchiveFault):
        restore(tmp_path / "junk", tmp_path / "new")


@pytest.mark.parametrize("name", ["../evil", "/tmp/perdure-evil", "archive/../../evil", "archive/link/evil"])
def test_restore_writes_only_into_its_home(full, tmp_path, name):
    import io

    from perdure.archive.verify import zstd

    with zstd.ZstdFile(tmp_path / "b", "wb") as packed, tarfile.open(fileobj=packed, mode="w|") as tar:
        note = tarfile.TarInfo("perdure-backup.txt")
        note.size = len(b"Perdure backup\ndigest x\n")
        tar.addfile(note, io.BytesIO(b"Perdure backup\ndigest x\n"))
        link = tarfile.TarInfo("archive/link")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path)
        tar.addfile(link)
        evil = tarfile.TarInfo(name)
        evil.size = 4
        tar.addfile(evil, io.BytesIO(b"evil"))
    with pytest.raises(ArchiveFault):
        restore(tmp_path / "b", tmp_path / "new")
    assert not (tmp_path / "evil").exists() and not Path("/tmp/perdure-evil").exists()


def test_restore_overwrites_nothing(full, tmp_path):
    full.upkeep.backup(tmp_path / "b")
    with pytest.raises(UsageError, match="exists already"):
        full.upkeep.backup(tmp_path / "b")
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").write_text("mine")
    with pytest.raises(UsageError, match="not empty"):
        restore(tmp_path / "b", tmp_path / "used")
    assert (tmp_path / "used" / "file").read_text() == "mine"


def test_backup_into_a_missing_folder_fails(full, tmp_path):
    with pytest.raises((UsageError, ArchiveFault)) as caught:
        full.upkeep.backup(tmp_path / "no" / "such" / "folder")
    assert "disk is full" not in str(caught.value)


def test_a_damaged_home_is_not_backed_up(full, tmp_path):
    (blob,) = (full.path / "archive" / "runs").rglob("*.jsonl")
    blob.write_bytes(b"changed\n")
    with pytest.raises(ArchiveFault, match="verify"):
        full.upkeep.backup(tmp_path / "b")
    assert not (tmp_path / "b").exists()


# verify -----------------------------------------------------------------------------------------------------


def findings(home, severity="problem"):
    return [finding for finding in home.upkeep.verify().findings if finding.severity == severity]


def loose(home, ending):
    (path,) = (home.path / "archive" / "runs").rglob(f"*{ending}")
    return path


def flip(path):
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(bytes(raw))


def test_sound_archive_has_no_findings(full):
    checked = full.upkeep.verify()
    assert checked.ok and checked.findings == []
    assert (checked.n_runs, checked.n_packs, checked.n_events) == (2, 1, 2)


def damage_bytes(home):
    flip(loose(home, ".jsonl"))
    return "its bytes differ from the captured bytes"


def damage_length(home):
    path = loose(home, ".jsonl")
    path.write_bytes(path.read_bytes() + b"more\n")
    return "its bytes differ from the captured bytes"


def damage_metadata(home):
    loose(home, ".metadata.json").write_bytes(b"{}")
    return "its metadata cannot be read"


def lose_bytes(home):
    loose(home, ".jsonl").unlink()
    return "its bytes are missing"


def damage_pack(home):
    (path,) = (home.path / "archive" / "packs").rglob("*.zst")
    path.write_bytes(path.read_bytes()[:-5])
    return "the pack is damaged"


def damage_pack_bytes(home):
    from perdure.archive import run_files

    (path,) = (home.path / "archive" / "packs").rglob("*.zst")
    run_files.write_pack(
        path, [(run, stored.replace(b"anchor", b"anchXr")) for run, stored in run_files.read_pack(path)]
    )
    return "its bytes differ from the captured bytes"


def damage_journal(home):
    (path,) = home.journal().list_files()
    flip(path)
    return "its hash does not match"


def lose_events(home):
    (path,) = home.journal().list_files()
    path.write_bytes(path.read_bytes().split(b"\n", 1)[1])
    return "events 1 to 1 of this writer are missing"


def open_modes(home):
    loose(home, ".jsonl").chmod(0o644)
    return "other users can read it"


@pytest.mark.parametrize(
    "damage",
    [damage_bytes, damage_length, damage_metadata, lose_bytes, damage_pack, damage_pack_bytes, damage_journal,
     lose_events, open_modes],
)  # fmt: skip
def test_damage_is_named_with_advice(full, damage):
    expected = damage(full)
    problems = findings(full)
    assert any(expected in finding.what for finding in problems), problems
    assert all(finding.where and finding.advice for finding in problems)
    assert not full.upkeep.verify().ok


def test_debris_is_a_notice(full):
    """What a crash leaves behind was never acknowledged: noted, and no problem."""
    blob = loose(full, ".jsonl")
    shutil.copy(blob, blob.with_name(f"{blob.stem[:-1]}0.jsonl"))
    (full.path / "archive" / "runs" / "ada" / ".x.1.tmp").touch(0o600)
    (blob.parent / ".y.jsonl.99.abc.tmp").touch(0o600)
    with full.journal().list_files()[0].open("ab") as file:
        file.write(b'{"id":"torn')
    assert findings(full) == []
    notices = [finding.what for finding in findings(full, "notice")]
    assert sum("interrupted" in what for what in notices) == 2 and sum("torn" in what for what in notices) == 1


def test_a_lost_run_is_had_again_from_the_transcript(home, message, tmp_path):
    """What the advice says works: the damaged run is taken away, and the next import brings it back."""
    path = tmp_path / "t.jsonl"
    path.write_bytes(message("user", "anchor", 0, session_id="s"))
    home.import_files([path])
    loose(home, ".metadata.json").write_bytes(b"\0\0")
    home.close()
    shutil.rmtree(home.path / "cache")
    import perdure

    with perdure.open(home.path, user="ada") as again:
        assert not again.upkeep.verify().ok
        again.import_files([path])
        assert again.upkeep.verify().ok and len(again.search("anchor").hits) == 1
