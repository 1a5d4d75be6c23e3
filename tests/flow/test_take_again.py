"""A run that is missing or damaged is taken in again from its transcript, by the command that `verify` names."""

import json
import shutil

import pytest
from click.testing import CliRunner

from perdure.surfaces.cli import cli


@pytest.fixture
def transcript(tmp_path, claude):
    """A transcript that grew three times."""
    path = tmp_path / "clients" / "s.jsonl"
    path.parent.mkdir()
    path.write_bytes(
        b"".join(claude("user", f"anchor {name}", name, n) for n, name in enumerate(("one", "two", "six")))
    )
    return path


@pytest.fixture
def full(home, transcript):
    """A home with three runs of one session, the first two packed or loose."""
    lines = transcript.read_bytes().splitlines(keepends=True)
    for n in range(1, 4):
        transcript.write_bytes(b"".join(lines[:n]))
        home.import_files([transcript])
    assert home.upkeep.verify().findings == [] and home.upkeep.verify().n_runs == 3
    return home


def list_blobs(home):
    return sorted((home.path / "archive" / "runs").rglob("*.jsonl"))


def list_problems(home):
    return [finding for finding in home.upkeep.verify().findings if finding.severity == "problem"]


def remove_middle(home):
    for path in list_blobs(home)[1].parent.glob(f"{list_blobs(home)[1].stem}.*"):
        path.unlink()
    return 1


def remove_all(home):
    shutil.rmtree(home.path / "archive" / "runs")
    return 3


def damage_bytes(home):
    path = list_blobs(home)[1]
    path.write_bytes(path.read_bytes().replace(b"anchor", b"anchXr"))
    return 1


def cut_metadata(home):
    path = list_blobs(home)[1].with_suffix(".metadata.json")
    path.write_bytes(path.read_bytes()[:-40])
    return 1


def damage_pack(home):
    home.upkeep.pack(idle_days=0)
    (path,) = (home.path / "archive" / "packs").rglob("*.zst")
    path.write_bytes(path.read_bytes()[:-5])
    return 3


def remove_pack(home):
    home.upkeep.pack(idle_days=0)
    shutil.rmtree(home.path / "archive" / "packs")
    return 3


@pytest.mark.parametrize("cache", ["kept", "lost"])
@pytest.mark.parametrize("harm", [remove_middle, remove_all, damage_bytes, cut_metadata, damage_pack, remove_pack])
def test_lost_runs_come_back_by_one_command(full, opened, transcript, harm, cache):
    before, digest = full.upkeep.verify().digest, full.upkeep.digest()
    n_lost = harm(full)
    problems = list_problems(full)
    assert problems and all("perdure import --again" in finding.advice for finding in problems)
    if cache == "lost":
        full.close()
        shutil.rmtree(full.path / "cache")
        full = opened()
    taken = full.upkeep.take_again([transcript])
    assert (len(taken.run_ids), taken.lost) == (n_lost, ())
    assert list_problems(full) == [] and full.upkeep.verify().digest == before
    assert full.upkeep.digest() == digest
    full.upkeep.rebuild()
    assert full.upkeep.digest() == digest and len(full.search("anchor").hits) == 3
    assert full.import_files([transcript]).n_runs == 0


def test_damaged_files_are_set_aside_and_named(full, transcript):
    damage_bytes(full)
    damaged = {path.read_bytes() for path in list_blobs(full)}
    full.upkeep.take_again([transcript])
    aside = sorted((full.path / "archive" / "quarantine" / "ada").iterdir())
    assert len(aside) == 2 and any(path.read_bytes() in damaged for path in aside)
    notices = {finding.where for finding in full.upkeep.verify().findings}
    assert notices == {f"quarantine/ada/{path.name}" for path in aside}
    full.forgetting.erase_user()
    assert not (full.path / "archive" / "quarantine" / "ada").exists()


def test_metadata_that_can_be_read_stays(home, transcript):
    home.import_files([transcript], tags=["work"])
    damage = list_blobs(home)[0]
    damage.write_bytes(b"x")
    home.upkeep.take_again([transcript])
    (entry,) = home.archive.ledger.list_runs()
    assert home.archive.read_run(entry).tags == ("work",) and list_problems(home) == []


def test_what_was_forgotten_does_not_come_back(full, transcript, grep):
    (hit,) = full.search("two").hits
    full.forgetting.apply(full.forgetting.plan([hit.turn_id]))
    remove_all(full)
    assert len(full.upkeep.take_again([transcript]).run_ids) == 3
    assert list_problems(full) == [] and grep(full.path, b"anchor two") == []


def test_a_changed_transcript_brings_nothing_back(full, transcript):
    damage_bytes(full)
    transcript.write_bytes(transcript.read_bytes().replace(b"anchor two", b"anchor XXX"))
    taken = full.upkeep.take_again([transcript])
    assert taken.run_ids == () and [record.run for record in taken.lost] == [list_blobs(full)[1].stem]
    assert not (full.path / "archive" / "quarantine").exists()


def test_a_session_that_its_adapter_emits_comes_back(home, tmp_path):
    """A document has no lines of its own: those that the adapter makes are compared."""
    path = tmp_path / "chat.json"
    path.write_text(json.dumps([{"role": "user", "content": "anchor of a document"}]))
    home.import_files([path], runtime="messages")
    shutil.rmtree(home.path / "archive" / "runs")
    assert len(home.upkeep.take_again([path], runtime="messages").run_ids) == 1 and list_problems(home) == []


def test_command_says_what_came_back_and_what_did_not(full, transcript, tmp_path):
    remove_middle(full)
    full.close()
    (full.path / "config.toml").write_text('user = "ada"\n')
    (tmp_path / "empty").mkdir()

    def run(*words):
        result = CliRunner().invoke(cli, [*words, "--home", str(full.path)])
        return result.exit_code, " ".join(result.output.split())

    code, printed = run("verify")
    assert code == 1 and "the run is missing" in printed and "`perdure import --again` takes it in" in printed
    code, printed = run("import", "--again", str(tmp_path / "empty"))
    assert code == 1 and "0 runs taken in again" in printed and "still lost" in printed
    assert run("import", "--again", str(transcript)) == (0, "1 run taken in again.")
    assert run("import", "--again", str(transcript)) == (0, "No run is missing or damaged.")
    assert run("verify")[0] == 0
