"""An import of the sessions that further clients wrote themselves (tests/data/hosts)."""

import shutil
from collections import Counter
from pathlib import Path

import perdure
from perdure.capture import transcripts

FOLDER = Path(__file__).parents[1] / "data" / "hosts"
AIDER = FOLDER / "tidepool" / ".aider.chat.history.md"


def test_an_import_without_a_path_finds_them_with_their_folder(tmp_path):
    shutil.copytree(FOLDER / "home", tmp_path / "user")
    paths = list(transcripts.find_sources(tmp_path / "user", lambda _: None))
    assert len(paths) == 6
    with perdure.open(tmp_path / "home", user="mira") as home:
        imported = home.captures.import_files([*paths, AIDER])
        assert (imported.n_files, imported.refused) == (7, [])
        runs = [home.archive.read_run(held) for held in home.archive.ledger.list_runs()]
    assert Counter(run.source.runtime for run in runs) == {"qwen-code": 1, "kimi-code": 2, "cline": 3, "aider": 2}
    assert {run.cwd for run in runs} == {"/home/mira/tidepool", str(AIDER.parent)}
