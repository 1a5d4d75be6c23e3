"""deja-vu: each session a transcript of Claude Code, asked by its own hook at a message (`deja hook-prompt`).

Arguments: PROGRAM FOLDER. A group is a home of its own. What the hook puts beside the message is told as it is, a
line each, without the words of its frame; its time is that of the whole process. A question about every project is
asked from /work/all.
"""

import json
import os
import re
import subprocess
import sys
import uuid
from pathlib import Path

from serve import serve

program, folder = sys.argv[1:]
homes: dict = {}
held: dict = {}  # group -> id -> its text, on one line
FRAME = ("<deja-recall>", "</deja-recall>", "Recalled history", "deja found", "If it helped")


def run(group, *words, text=""):
    env = {**os.environ, "HOME": str(homes[group])}
    done = subprocess.run([program, *words], input=text, env=env, capture_output=True, text=True, check=True)
    return done.stdout


def take(group, texts):
    held[group] = {row["id"]: " ".join(row["text"].split()) for row in texts}
    homes[group] = Path(folder) / f"home-{len(homes)}"
    sessions: dict = {}
    for row in texts:
        sessions.setdefault((row["project"] or "/work/all", row["session"]), []).append(row)
    for (project, name), rows in sessions.items():
        session = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{group}/{project}/{name}"))
        place = homes[group] / ".claude" / "projects" / project.replace("/", "-")
        place.mkdir(parents=True, exist_ok=True)
        lines = to_lines(rows, session, project)
        (place / f"{session}.jsonl").write_text("".join(lines), encoding="utf-8")
    run(group, "index")
    return 0


def to_lines(rows, session, project):
    parent = None
    for row in rows:
        kind = "assistant" if row["role"] == "assistant" else "user"
        content = [{"type": "text", "text": row["text"]}] if kind == "assistant" else row["text"]
        own = str(uuid.uuid4())
        line = {
            "parentUuid": parent, "isSidechain": False, "userType": "external", "cwd": project, "sessionId": session,
            "version": "2.0.14", "type": kind, "uuid": own, "timestamp": row["at"], "message": {
                "role": kind, "content": content, **({"model": "m"} if kind == "assistant" else {})},
        }  # fmt: skip
        parent = own
        yield json.dumps(line, ensure_ascii=False) + "\n"


def ask(group, text, _k, project):
    event = {
        "session_id": str(uuid.uuid4()), "cwd": project or "/work/all", "prompt": text,
        "hook_event_name": "UserPromptSubmit", "transcript_path": "/nowhere.jsonl",
    }  # fmt: skip
    answer = run(group, "hook-prompt", text=json.dumps(event))
    block = json.loads(answer)["hookSpecificOutput"]["additionalContext"] if answer.strip() else ""
    told, heading = [], ""
    for line in block.splitlines():
        if line.startswith("- **"):
            heading = line + "\n"
        elif line.strip() and not line.startswith(FRAME):
            told.append({"text": heading + line, "id": find_quoted(group, line)})
            heading = ""
    return told


def find_quoted(group, line):
    """The text that a line quotes, shortened or not; "" without one."""
    quote = " ".join(re.sub(r"^\s*- \w+: ", "", line).split()).rstrip("…. ")
    return next((name for name, words in held[group].items() if quote and quote in words), "")


serve(take, ask)
