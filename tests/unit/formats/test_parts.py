"""Files, skills and images in tool calls."""

import base64
import json

import pytest

from perdure.formats.parts import (
    build_image_part,
    collect_images,
    detect_image_type,
    extract_image,
    find_files_and_skills,
)


@pytest.mark.parametrize(
    ("name", "given", "files"),
    [
        ("Edit", {"file_path": "a"}, ("a",)),
        ("NotebookEdit", {"notebook_path": "n.ipynb"}, ("n.ipynb",)),
        ("read_many_files", {"paths": ["a", "b", 3]}, ("a", "b")),
        ("read", {"filePath": "/w/a"}, ("/w/a",)),
        ("Grep", {"path": "/w", "pattern": "x"}, ()),
        ("list_directory", {"path": "/w"}, ()),
        ("write", {"path": "bad\nname"}, ()),
        ("write", {"path": ""}, ()),
        ("patch", {"patchText": "*** Update File: a b.py\n*** Move to: c.py"}, ("a b.py", "c.py")),
        ("apply_patch", "*** Begin Patch\n*** Delete File: d.py\n", ("d.py",)),
        ("shell", {"command": ["bash", "-lc", "apply_patch <<'E'\n*** Begin Patch\n*** Add File: x\nE"]}, ("x",)),
        ("exec_command", {"cmd": "sed -n '1,240p' 'a b.md'"}, ("a b.md",)),
        ("Bash", {"command": "head -n 20 a.txt"}, ("a.txt",)),
        ("Bash", {"command": "cat a; rm b"}, ()),
        ("Bash", {"command": "cat $HOME/a"}, ()),
        ("Bash", {"command": "cat *.py"}, ()),
        ("Bash", {"command": "cat < a"}, ()),
        ("Bash", {"command": 3}, ()),
        ("x", [1], ()),
        ("x", None, ()),
    ],
)
def test_touched_files_are_found(name, given, files):
    assert find_files_and_skills(name, given)[0] == files


@pytest.mark.parametrize(
    ("name", "given", "skills"),
    [
        ("Skill", {"skill": "golang"}, ("golang",)),
        ("Skill", {"command": "/notes"}, ("notes",)),
        ("activate_skill", {"name": "docs"}, ("docs",)),
        ("skill", {"other": 1}, ()),
        ("Read", {"file_path": "/h/.claude/skills/notes/SKILL.md"}, ("notes",)),
        ("read", {"path": "C:\\skills\\notes\\SKILL.md"}, ("notes",)),
        ("Write", {"file_path": "/h/skills/notes/SKILL.md"}, ()),
        ("exec_command", {"cmd": "sed -n '1,9p' /h/.agents/skills/beads/SKILL.md"}, ("beads",)),
        ("exec_command", {"cmd": "git add skills/beads/SKILL.md"}, ()),
    ],
)
def test_used_skills_are_found(name, given, skills):
    assert find_files_and_skills(name, given)[1] == skills


def test_a_long_command_is_quick():
    assert find_files_and_skills("Bash", {"command": "cat " + "a " * 500_000}) == ((), ())
    assert find_files_and_skills("Bash", {"command": "cat " + "'a' " * 1000 + ";"}) == ((), ())


PNG = b"\x89PNG\r\n\x1a\nrest"
DATA = base64.b64encode(PNG).decode()
DIGEST = build_image_part("image/png", DATA).digest
SOURCE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}}


def line(value):
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    "value",
    [
        {"message": {"content": [{"type": "text", "text": "see"}, SOURCE]}},
        {"message": {"content": [{"type": "tool_result", "content": [SOURCE]}]}, "toolUseResult": [SOURCE]},
        {"payload": {"content": [{"type": "input_image", "image_url": f"data:image/png;base64,{DATA}"}]}},
        {"content": [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}}]},
        {"message": {"content": [{"type": "image", "mimeType": "image/png", "data": DATA}]}},
        {"toolCalls": [{"result": [{"inlineData": {"mimeType": "image/png", "data": DATA}}]}]},
        {"parts": [{"type": "file", "mime": "image/png", "url": f"data:image/png;base64,{DATA}"}]},
    ],
)
def test_an_image_is_found_in_every_shape(value):
    assert extract_image([line(value)], DIGEST) == PNG


def test_images_of_equal_size_are_told_apart_by_their_digest():
    other = PNG[:-1] + b"!"
    second = {"type": "image", "source": {"media_type": "image/png", "data": base64.b64encode(other).decode()}}
    lines = [line([SOURCE, SOURCE, second])]
    digests = [part.digest for part in collect_images([SOURCE, SOURCE, second])]
    assert digests[0] == digests[1] != digests[2]
    assert extract_image(lines, digests[2]) == other and extract_image(lines, digests[0]) == PNG


def test_missing_or_broken_image_is_none():
    assert extract_image([b"no json", line({"a": 1}), line([])], DIGEST) is None
    assert extract_image([line({"url": f"data:image/png;base64,{DATA}!"})], DIGEST) is None
    address = build_image_part("image/png", "https://example.org/a.png")
    assert address.digest == "" and extract_image([line(SOURCE)], "") is None
    broken = line({"type": "image", "source": {"media_type": "image/png", "data": "!"}})
    assert extract_image([broken], build_image_part("image/png", "!").digest) == b""


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (PNG, "image/png"), (b"\xff\xd8\xff\xe0", "image/jpeg"), (b"GIF87a", "image/gif"),
        (b"RIFF1234WEBPVP8 ", "image/webp"), (b"<svg onload=alert(1)>", None), (b"<html>", None), (b"", None),
        (b"RIFF1234WAVE", None),
    ],
)  # fmt: skip
def test_media_type_is_read_from_the_bytes(body, kind):
    assert detect_image_type(body) == kind
