"""What the documents say is true: their commands run, their tables are complete, their reference is current."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import runpy
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.agent.job_definition import JobDefinition, parse_job
from perdure.config import _ITEM_CLASSES, Config
from perdure.surfaces.cli import _COMMANDS
from perdure.workflow.tier_setup import read_env_file
from rig.athena_server import AthenaServer
from rig.bot_api import TOKEN, BotApiServer
from rig.mail_server import MailServer
from rig.model_server import Answer, ModelServer
from rig.pds import ScriptedNetwork
from rig.postgres import ROLE, PostgresServer
from rig.skill_folders import put_skill

ROOT = Path(__file__).parents[2]
SKILL = "plugins/perdure/skills/perdure/SKILL.md"
SAMPLES = ROOT / "src/perdure/samples"
PAGES = (
    "docs/guide.md", "docs/memories.md", "docs/floor.md", "docs/clients.md", "docs/mcp.md", "docs/server.md",
    "docs/page.md", "docs/pictures.md", "docs/proxy.md", "docs/sharing.md", "docs/sync.md", "docs/import.md",
    "docs/skills.md", "docs/report.md", "README.md", SKILL,
)  # fmt: skip


def commands_of(page: str) -> list[str]:
    blocks = re.findall(r"```console\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "samples").symlink_to(SAMPLES)
    return tmp_path


def run(line: str, place: Path) -> subprocess.CompletedProcess[str]:
    words = shlex.split(line, comments=True)
    env = {**os.environ, "HOME": str(place), "PERDURE_HOME": str(place / ".perdure"), "NO_COLOR": "1"}
    env.pop("CODEX_HOME", None)
    env.pop("CLAUDE_CONFIG_DIR", None)
    program = [sys.executable, "-m", "perdure.surfaces.cli", *words[1:]]
    return subprocess.run(program, cwd=place, env=env, capture_output=True, text=True, timeout=120, check=False)


def put_stores(place: Path) -> None:
    """Put the recorded stores of other products where the page about them finds them."""
    stores = ROOT / "tests" / "data" / "stores"
    for name, path in (("claude-mem.sql", ".claude-mem/claude-mem.db"), ("mem0-history.sql", ".mem0/history.db")):
        (place / path).parent.mkdir()
        with contextlib.closing(sqlite3.connect(place / path)) as connection:
            connection.executescript((stores / name).read_text())
    shutil.copytree(stores / "basic-memory", place / "basic-memory")
    shutil.copytree(stores / "basic-memory", place / "notes" / "basic")
    shutil.copy(stores / "memory-server.jsonl", place / "memory.jsonl")
    shutil.copy(stores / "mem0-export.json", place / "export.json")
    (place / "notes" / "mine").mkdir()
    (place / "notes" / "mine" / "tools.md").write_text("# Tools\n\n- Lint with ruff before each push.\n")
    (place / "state.json").write_text('{"documents": {"docs://one": "The pier opens at nine."}}')
    program = [sys.executable, str(ROOT / "tests" / "rig" / "mcp_source.py"), str(place / "state.json")]
    (place / ".perdure").mkdir(mode=0o700)
    (place / ".perdure" / "config.toml").write_text(f"[mcp.sources.docs]\ncommand = {json.dumps(program)}\n")


@pytest.mark.parametrize("page", PAGES)
def test_every_command_in_the_docs_runs(page: str, place: Path) -> None:
    lines = commands_of(page)
    assert len(lines) > 5
    if page in ("README.md", "docs/report.md", SKILL):
        run("perdure import samples", place)
    if page == "docs/import.md":
        put_stores(place)
    if page == "docs/skills.md":
        put_skill(place / "mine", "release-notes")
    for line in lines:
        assert line.startswith("perdure "), line
        done = run(line, place)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"


def test_every_command_about_operating_runs_on_postgres(place: Path) -> None:
    """The restore drill, too: it finds what the home has, and leaves the database of the home as it was."""
    with contextlib.closing(PostgresServer()) as server:
        database = server.create_database()
        address = server.get_address(database, role=ROLE)
        (place / ".perdure").mkdir(mode=0o700)
        workers = "[workers]\nenabled = true\n"
        settings = f'[index]\nengine = "postgres"\naddress = "{address}"\n{workers}'
        (place / ".perdure" / "config.toml").write_text(settings)
        lines = commands_of("docs/operating.md")
        assert len(lines) == 16
        outputs = {}
        for line in lines:
            is_ours = line.startswith("perdure ")
            done = run(line, place) if is_ours else subprocess.run(shlex.split(line), cwd=place, check=False)
            assert done.returncode == 0 or line == "perdure doctor", f"{line}\n{done.stdout}\n{done.stderr}"
            outputs[line] = str(done.stdout)
        assert "none is running" in outputs["perdure doctor"]
        assert "Whole" in outputs["perdure verify --home drill"]
        assert outputs['perdure search "tide" --home drill'] == outputs['perdure search "tide"'] != ""
        assert (place / "drill" / "index.db").exists()
        n_schemas = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'perdure%'"
        assert server.execute(n_schemas, database=database) == [(3,)]  # the index, the one that names it, the queue
        assert not (place / ".perdure" / "index.db").exists()


@pytest.mark.timeout(900)
def test_every_command_about_teams_runs(place: Path) -> None:
    """A note of bob's stands for the one of the page; its id is the one that the home gave it."""
    lines = commands_of("docs/teams.md")
    assert len(lines) == 18
    (place / ".perdure").mkdir(mode=0o700)
    (place / ".perdure" / "config.toml").write_text('user = "mira"\n')
    (place / "members.txt").write_text("# who may read the repository\nada\nbob\nmira\n")
    note_id = ""
    for line in lines:
        if line.startswith("perdure team accept"):
            note_id = propose_note(place / ".perdure")
        done = run(line.replace("g-5b1e83f0a92d47c6", note_id), place)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    assert run("perdure team list", place).stdout.endswith("ada (reviewer), mira (reviewer)\n")


def propose_note(home_path: Path) -> str:
    """Let bob propose a note that mira may review; return its id."""
    with perdure.open(home_path, user="mira") as mira:
        mira.sharing.teams.add("orchard", "mira", is_reviewer=True)
    with perdure.open(home_path, user="bob") as bob:
        memory = bob.remember("The ferry leaves at nine", path="ferry/time")
        return bob.sharing.share("@orchard", "memory", memory.memory_id).grant.grant_id


def test_every_command_about_sessions_runs(place: Path) -> None:
    lines = commands_of("docs/sessions.md")
    assert len(lines) > 5
    with ModelServer(answers=[Answer("It is port 8443.")] * len(lines)) as server:
        (place / ".perdure").mkdir(mode=0o700)
        role = f'provider = "openai"\nmodel = "m"\nurl = "{server.url}/v1"\n'
        (place / ".perdure" / "config.toml").write_text(f"[models.roles.resident]\n{role}")
        for line in lines:
            done = run(line, place)
            assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    assert "It is port 8443." in (place / "staging.md").read_text()


def test_every_command_about_the_store_runs(place: Path) -> None:
    """With a folder instead of the bucket: `tests/flow/test_archive_store.py` asks a real server."""
    lines = [line for line in commands_of("docs/archive-store.md") if not line.startswith("pip ")]
    assert len(lines) == 3
    (settings,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/archive-store.md").read_text(), re.DOTALL)
    (place / ".perdure").mkdir(mode=0o700)
    (place / "bucket").mkdir()
    text = settings.replace("s3://my-bucket/perdure", str(place / "bucket"))
    (place / ".perdure" / "config.toml").write_text(text)
    run("perdure import samples", place)
    for line in lines:
        done = run(line, place)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    assert list((place / "bucket" / "packs").glob("*/*.zst"))


def test_every_command_about_identity_runs(place: Path) -> None:
    lines = commands_of("docs/identity.md")
    assert len(lines) == 5
    blocks = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/identity.md").read_text(), re.DOTALL)
    assert len(blocks) == 3
    with ScriptedNetwork() as network:
        network.create_account("anna.family.example", "x" * 20)
        text = "".join(block for block in blocks).replace("https://plc.directory", network.directory)
        text = text.replace("https://pds.family.example", network.server).replace("pds.home.arpa", "localhost")
        (place / ".perdure").mkdir(mode=0o700)
        (place / ".perdure" / "config.toml").write_text(text.replace('ca = "~/family-ca.pem"\n', ""))
        for line in lines:
            done = run(line, place)
            assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
            if line == "perdure user list":
                assert "is anna.family.example" in done.stdout and "is 248289761001" in done.stdout


def test_every_command_about_jobs_runs(place: Path) -> None:
    lines = commands_of("docs/jobs.md")
    assert len(lines) > 15
    (settings, *_) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/delivery.md").read_text(), re.DOTALL)
    (place / ".perdure").mkdir(mode=0o700)
    (place / "notes").mkdir()
    with ModelServer(answers=[Answer("Nothing is open.")]) as server:
        role = f'[models.roles.resident]\nprovider = "openai"\nmodel = "m"\nurl = "{server.url}/v1"\n'
        (place / ".perdure" / "config.toml").write_text(settings + role)
        for line in lines:
            done = run(line, place)
            assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"


def test_the_keys_of_jobs_are_all_in_the_document() -> None:
    page = (ROOT / "docs/jobs.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"\| key \| meaning \|\n(.*?)\n\n", page, re.DOTALL)
    keys = {key for row in table.splitlines()[1:] for key in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert keys == {field.name for field in dataclasses.fields(JobDefinition)} - {"name"}
    (example, *_) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert parse_job("standup", example).tools == ("recall",)


def test_every_command_about_editors_runs(place: Path) -> None:
    """But the first, which installs. `perdure acp` itself is driven in test_acp.py."""
    install, *lines = commands_of("docs/editors.md")
    assert install == "pip install 'perdure[acp]'" and len(lines) > 1
    for line in lines:
        done = run(line, place)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"


def test_the_settings_of_editors_are_valid() -> None:
    """Each starts `perdure acp`. What is JSON parses."""
    page = (ROOT / "docs" / "editors.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```(json|lua|elisp)\n(.*?)```", page, re.DOTALL)
    assert [language for language, _ in blocks] == ["json", "json", "json", "lua", "lua", "elisp"]
    for language, block in blocks:
        assert re.search(r"perdure\b.*\bacp\b", block, re.DOTALL)
        if language == "json":
            (servers,) = json.loads(block).values()
            assert servers["Perdure"]["args"] == ["acp"]


def test_every_command_about_deliveries_runs(place: Path) -> None:
    lines = commands_of("docs/delivery.md")
    assert len(lines) > 5
    (settings, *_) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/delivery.md").read_text(), re.DOTALL)
    (place / ".perdure").mkdir(mode=0o700)
    (place / ".perdure" / "config.toml").write_text(settings)
    (place / "notes").mkdir()
    for line in lines:
        done = run(line, place)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    assert (place / "notes" / "results.md").read_text().count("The build is green.") == 1


def test_every_command_about_telegram_runs(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = commands_of("docs/telegram.md")
    assert len(lines) == 2
    monkeypatch.setenv("PERDURE_TELEGRAM_TOKEN", TOKEN)
    (settings,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/telegram.md").read_text(), re.DOTALL)
    (place / ".perdure").mkdir(mode=0o700)
    with BotApiServer() as server:
        (place / ".perdure" / "config.toml").write_text(f'{settings}url = "{server.url}"\n')
        for line in lines:
            done = run(line, place)
            assert done.returncode == 0 and "perdure_bot" in done.stdout, f"{line}\n{done.stdout}\n{done.stderr}"


def test_the_agent_answers_as_its_guide_says(place: Path) -> None:
    """The commands of the guide, then its program, with the address and the secret that they print."""
    pytest.importorskip("openai")
    page = (ROOT / "docs" / "agent-api.md").read_text(encoding="utf-8")
    register, serve = commands_of("docs/agent-api.md")
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    with ModelServer(answers=[Answer("It is port 8443.")]) as model:
        (place / ".perdure").mkdir(mode=0o700)
        role = f'[models.roles.resident]\nprovider = "openai"\nmodel = "m"\nurl = "{model.url}/v1"\n'
        (place / ".perdure" / "config.toml").write_text(f'[server]\nhttp = "127.0.0.1:0"\n{role}')
        secret = json.loads(run(f"{register} --json", place).stdout)["result"]["secret"]
        try:
            address = json.loads(run(f"{serve} --json", place).stdout)["result"]["http"]
            program = f"SECRET = {secret!r}\n" + block.replace("http://127.0.0.1:8787", address)
            done = subprocess.run(
                [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
            )
        finally:
            run("perdure serve --stop", place)
    assert (done.stdout, done.stderr) == ("It is port 8443.", "")


def test_every_command_about_mail_runs(place: Path) -> None:
    lines = commands_of("docs/mail.md")
    assert len(lines) == 3
    (_, settings) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/mail.md").read_text(), re.DOTALL)
    (place / ".perdure").mkdir(mode=0o700)
    (place / "mail").mkdir()
    with MailServer() as server:
        settings = settings.replace("smtp_port = 25", f"smtp_port = {server.port}")
        (place / ".perdure" / "config.toml").write_text(settings)
        for line in lines:
            done = run(line, place)
            assert done.returncode == 0 and "agent@example.org" in done.stdout, f"{line}\n{done.stdout}\n{done.stderr}"


def test_the_readme_begins_with_install_and_start() -> None:
    """.ci/wheel runs these two, as they stand there, with a local package index."""
    start = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Start\n")[2]
    commands = re.findall(r"```sh\n(.*?)```", start, re.DOTALL)[0].splitlines()
    assert [line.partition("#")[0].strip() for line in commands] == ["pip install .", "perdure start"]


def test_python_of_the_readme_runs(place: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    env = {**os.environ, "PERDURE_HOME": str(place / "home")}
    done = subprocess.run([sys.executable, "-c", block], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "None user We chose SQLite."


PYTHON_PAGES = {
    "docs/python.md": ([Answer("Opened.")], "We moved the staging server to port 9090"),
    "docs/memory-tool.md": (
        [
            Answer(calls=[("memory", {"command": "view", "path": "/memories"})]),
            Answer(calls=[("memory", {
                "command": "create", "path": "/memories/deploys.md", "file_text": "We deploy on Tuesdays.\n",
            })]),
            Answer("I will."),
        ],
        "23B\t/memories/deploys.md\nWe deploy on Tuesdays.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("page", PYTHON_PAGES)
def test_python_of_the_guides_runs(page: str, place: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    answers, printed = PYTHON_PAGES[page]
    with ModelServer(answers=answers) as model:
        env = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
        env |= {"PERDURE_HOME": str(place / "home"), "ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "none"}
        program = [sys.executable, "-c", "\n".join(blocks)]
        done = subprocess.run(program, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert printed in done.stdout
    assert not model.answers, "everything that was scripted was asked for"


def test_the_workflow_guide_goes_on_after_a_restart(place: Path) -> None:
    """Its commands bring the tiers up, its program runs twice with them, and its commands read what that wrote."""
    pytest.importorskip("redis")
    block, _ = re.findall(r"```python\n(.*?)```", (ROOT / "docs/workflow.md").read_text(encoding="utf-8"), re.DOTALL)
    lines = commands_of("docs/workflow.md")
    assert [line.split()[2] for line in lines] == ["init", "status", "context", "search", "stop"]
    outputs = []
    try:
        for line in ["perdure memory init --own", *lines]:  # not a server that runs here for somebody else
            if " context " in line:
                env = {**os.environ, "PERDURE_HOME": str(place / ".perdure"), **read_env_file(place / ".env")}
                for number in (1, 2):
                    done = subprocess.run(
                        [sys.executable, "-c", block], cwd=place, env=env, capture_output=True, text=True, check=False
                    )
                    assert done.returncode == 0, done.stderr
                    assert f"### t{number} " in done.stdout and done.stdout.endswith(f"{number} turns in the archive\n")
            done = run(line, place)
            assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
            outputs.append(done.stdout)
    finally:
        run("perdure memory stop", place)
    assert "Which sources are there?" in outputs[-3] and "Which sources are there?" in outputs[-2]
    assert outputs[-1] == "Stopped: redis\n"
    assert "Which sources are there?" in run('perdure search "which sources"', place).stdout


@pytest.mark.parametrize("is_set", [True, False])
def test_the_client_of_athena_in_the_workflow_guide_runs(is_set: bool, place: Path) -> None:
    _, block = re.findall(r"```python\n(.*?)```", (ROOT / "docs/workflow.md").read_text(encoding="utf-8"), re.DOTALL)
    server = AthenaServer()
    env = {name: value for name, value in os.environ.items() if not name.startswith("ATHENA_")}
    env |= {"ATHENA_URL": server.url} if is_set else {}
    done = subprocess.run([sys.executable, "-c", block], env=env, capture_output=True, text=True, check=False)
    server.shutdown()
    server.server_close()
    assert done.returncode == 0, done.stderr
    assert ("Forty-two records were found." in done.stdout) is is_set
    assert ("ATHENA_URL is not set" in done.stdout) is not is_set


@pytest.mark.parametrize("wire", ["anthropic", "openai"])
def test_python_of_the_floor_guide_runs(wire: str, place: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/floor.md").read_text(encoding="utf-8"), re.DOTALL)
    assert "context.anthropic()" in block
    env = {**os.environ, "PERDURE_HOME": str(place / "home")}
    program = block.replace("context.anthropic()", f"context.{wire}()")
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["It is 8443. True", "I do not know. the message asks for nothing"]


def test_the_reference_is_made_from_this_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["generate.py", "--check"])
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(ROOT / "docs/reference/generate.py"), run_name="__main__")
    assert not stop.value.code


def test_every_command_is_in_the_reference() -> None:
    text = (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")
    assert all(f"\n## {name}\n" in text for name in _COMMANDS)


def settings(table: Any, lead: str = "") -> Iterator[str]:
    """The names of all settings, tables within tables included."""
    for name, value in table._asdict().items():
        item_class = _ITEM_CLASSES.get((type(table), name))
        if item_class and isinstance(value, dict):
            key = {"sources": "NAME", "delivery": "NAME", "effort": "JOB"}.get(name, "MODEL")
            keyed = f"{lead}{name}.{key}"
            yield from settings(item_class(), f"{keyed}.") if hasattr(item_class, "_fields") else [keyed]
        elif hasattr(value, "_fields"):
            yield from settings(value, f"{lead}{name}.")
        else:
            yield lead + name


def test_every_setting_is_documented() -> None:
    text = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    names = {re.sub(r"^models\.roles\.\w+", "models.roles.ROLE", name) for name in settings(Config())}
    assert {"models.embedder.kind", "models.roles.ROLE.model", "models.prices.MODEL.input"} <= names
    assert [name for name in names if f"| `{name}` |" not in text] == []


def test_links_in_the_docs_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_claim_about_security_names_a_test_that_exists() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page)
    assert len(named) > 30
    assert [name for path, name in named if f"def {name}(" not in (ROOT / path).read_text(encoding="utf-8")] == []
    rows = [line for line in page.splitlines() if line.startswith("| holds |")]
    assert [line for line in rows if "tests/" not in line and "measured" not in line] == []
