"""The manifest: lines are facts, whoever wrote them and in whatever order they are read."""

from datetime import UTC, datetime

from perdure.archive.manifest import ArchiveManifest, EventRecord, append, make_run_record
from perdure.types import Run, Source

NOW = datetime(2026, 1, 15, tzinfo=UTC)


def make_run(run_id="01kf0e44m0wx1mfpj6rhpxegx9", to_offset=10, sha256="a"):
    source = Source("ada", "messages", "s")
    return Run(
        run_id=run_id, source=source, machine="m", agent="default", project=None, conversation="s", from_offset=0,
        to_offset=to_offset, sha256=sha256, started_at=NOW, ended_at=NOW, captured_at=NOW,
    )  # fmt: skip


def test_lines_are_read_back(tmp_path):
    path = tmp_path / "w1" / "2026-01.jsonl"
    append(path, [make_run_record(make_run()), EventRecord("key", "w1/2026-01.jsonl")])
    manifest = ArchiveManifest(tmp_path)
    assert manifest.list_runs() == [make_run_record(make_run())] and manifest.knows(make_run())
    assert [record.file for record in manifest.list_events().values()] == ["w1/2026-01.jsonl"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_last_line_of_a_writer_counts_and_the_longest_of_several(tmp_path):
    append(tmp_path / "w1" / "2026-01.jsonl", [make_run_record(make_run(to_offset=n)) for n in (30, 10)])
    append(tmp_path / "w2" / "2026-01.jsonl", [make_run_record(make_run(to_offset=20))])
    manifest = ArchiveManifest(tmp_path)
    assert [record.end for record in manifest.list_runs()] == [20]
    assert manifest.knows(make_run(to_offset=10)) and not manifest.knows(make_run(to_offset=30))


def test_a_run_that_one_writer_moved_is_not_expected(tmp_path):
    append(tmp_path / "w1" / "2026-01.jsonl", [make_run_record(make_run())])
    append(tmp_path / "w2" / "2026-01.jsonl", [make_run_record(make_run(), removed=True)])
    assert ArchiveManifest(tmp_path).list_runs() == []
    append(tmp_path / "w2" / "2026-01.jsonl", [make_run_record(make_run())])  # it came back
    assert len(ArchiveManifest(tmp_path).list_runs()) == 1


def test_unreadable_lines_say_nothing(tmp_path):
    path = tmp_path / "w1" / "2026-01.jsonl"
    path.parent.mkdir()
    path.write_bytes(b'\0\0\n{"run":1}\n{"event"}\nx\n\n{"run":"01')
    append(path, [EventRecord("key", "f")])
    assert set(ArchiveManifest(tmp_path).list_events()) == {"key"} and ArchiveManifest(tmp_path).list_runs() == []
