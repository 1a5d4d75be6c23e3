"""`@` in typed words attaches files of the project, and nothing else."""

from __future__ import annotations

from pathlib import Path

from perdure.agent.attachments import MAX_FILES, attach_files, list_mentions
from perdure.agent.folders import ProjectFolders
from rig.agent_project import PNG

WINDOW = 128_000


def attach(folders: ProjectFolders, text: str, window_tokens: int = WINDOW):
    return attach_files(list_mentions(text), folders, window_tokens=window_tokens)


def test_a_text_and_an_image_go_with_the_message(folders: ProjectFolders) -> None:
    (folders.root / "src/a b.py").write_text("x = 1\n")
    (folders.root / "dot.png").write_bytes(PNG)
    attached = attach(folders, 'look at @"src/a b.py", @dot.png and (@Makefile).')
    assert [(file.path, file.text) for file in attached.files] == [("src/a b.py", "x = 1")]
    attached = attach(folders, "@Makefile, and again @Makefile.")
    assert [(file.path, file.text) for file in attached.files] == [("Makefile", "all:")]
    (image,) = attach(folders, "@dot.png").images
    assert image.media_type == "image/png" and not attached.problems
    first, second = (attach(folders, "@Makefile").files[0].code for _ in range(2))
    assert first != second


def test_a_word_that_names_nothing_is_a_word(folders: ProjectFolders) -> None:
    attached = attach(folders, "ask @ada, mail ada@Makefile, @property")
    assert attached.files == attached.problems == ()
    assert attach(folders, "see @src/missing.py.").problems == ("@src/missing.py.: there is no such file",)


def test_only_files_of_the_project_are_read(folders: ProjectFolders, tmp_path: Path) -> None:
    (tmp_path / "outside.txt").write_text("outside")
    (folders.root / "blob.bin").write_bytes(b"\0\1")
    for word, problem in (
        ("@../outside.txt", "lies outside the project"),
        ("@link/passwd", "lies outside the project"),
        ("@/etc/passwd", "lies outside the project"),
        ("@../mind/config.toml", "lies in the home of Perdure"),
        ("@src", "is a folder"),
        ("@blob.bin", "is a binary file"),
    ):
        attached = attach(folders, word)
        assert attached.files == () and problem in attached.problems[0], word


def test_files_take_a_part_of_the_window_in_whole_lines(folders: ProjectFolders) -> None:
    """4 characters a token, a quarter of 1,000 tokens: 1,000 bytes, and lines of 100 bytes with their end."""
    (folders.root / "long.txt").write_text(("y" * 99 + "\n") * 40)
    attached = attach(folders, "@long.txt @Makefile", 1000)
    lines = attached.files[0].text.split("\n")
    assert lines[:10] == ["y" * 99] * 10 and lines[10:] == ["", "[Lines 1 to 10 of 40. Read on with offset=11.]"]
    assert attached.problems == ("Makefile: the files before it fill their part of the model's window",)


def test_so_many_files_and_no_more(folders: ProjectFolders) -> None:
    names = [f"f{n}.txt" for n in range(MAX_FILES + 1)]
    for name in names:
        (folders.root / name).write_text(name)
    attached = attach(folders, " ".join(f"@{name}" for name in names))
    assert len(attached.files) == MAX_FILES
    assert attached.problems == (f"f{MAX_FILES}.txt is left out: at most {MAX_FILES} files go with a message",)
