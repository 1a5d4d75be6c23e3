"""docs/architecture.md says what the import contract says, and the contract's exceptions are few and named."""

import ast
import configparser
import re
from pathlib import Path

import pytest

import perdure
from rig.source import parse

pytestmark = pytest.mark.xdist_group("source")  # one worker parses the package for all of them

ROOT = Path(__file__).parents[2]
PACKAGE = Path(perdure.__file__).parent
PAGE = (ROOT / "docs" / "architecture.md").read_text()
SQL = re.compile(
    r"\b(SELECT\s.+\sFROM|INSERT\s+(OR\s+\w+\s+)?INTO|DELETE\s+FROM|UPDATE\s+\w+\s+SET|CREATE\s+TABLE)\b", re.S
)
SQL_FILES = {  # outside of index/ and jobs/, sqlite.py and files called store.py: each with its reason
    "eval/plain_text.py": "measures SQLite's own search beside recall",
    "forgetting.py": "deletes a user's rows from the server's own small database",
    "models/cost_meter.py": "its own small database, run/meter.db",
    "recall/index_candidates.py": "reads the candidates of recall and search",
}
START_UP = {  # a hook, a command or a recall by words loads these, so they load the rest when it is used
    "__init__.py", "capture/__main__.py", "capture/hook.py", "connections.py", "floor/room.py", "forgetting.py",
    "home.py", "memories/room.py", "queries.py", "remote_home.py", "runs.py", "sharing/room.py", "turn.py", "upkeep.py",
}  # fmt: skip
LATER = {  # outside of these paths, the files that import something of ours when it is used: each with its reason
    "agent/agent.py": "the package `mcp` is optional, and takes a second",
    "capture/enqueue.py": "a hook copies lines with it; few captures need projects or emitted lines",
    "capture/policy.py": "a hook pays for reading config.toml once, not each time",
    "recall/plan.py": "few homes have a model that plans a recall",
    "pictures/child.py": "a process that sets its limits first, then loads the engine",
    "formats/__init__.py": "a recall by words loads the package, and no format",
    "index/catchup.py": "opening a home looks for changes; only changes need the projection",
    "index/keyword.py": "numpy is for a process that asks more than once",
    "index/postgres.py": "numpy is for a search by meaning alone",
    "models/local_embedders.py": "http and ssl, 30 ms, are for a remote embedder alone",
    "models/roles.py": "one provider is chosen",
    "service/builtin_jobs.py": "the miner, 20 ms, is for one job",
    "text.py": "the types, 10 ms, are for the paragraphs of files",
    "surfaces/cli/worker.py": "help needs no queue, whose packages are optional",
    "service/server.py": "the packages of the queue are optional, and a home with one process has none",
    "surfaces/chat/session_thread.py": "the first screen of a chat waits for no home",
    "surfaces/chat/terminal_chat.py": "the first screen of a chat waits for no home",
    "surfaces/cli/acp.py": "the package `acp` is optional, and `initialize` is answered before it is loaded",
    "surfaces/cli/ask.py": "help needs no session, and a pipe no notices",
    "surfaces/cli/chat.py": "help needs no prompt_toolkit",
    "surfaces/cli/common.py": "every command loads it; help and completion of options need no home",
    "surfaces/cli/context.py": "the parts of a session are for its bill alone",
    "surfaces/cli/evaluate.py": "numpy and the models are for the suite that is run",
    "surfaces/cli/import_mcp.py": "the package `mcp` is optional",
    "surfaces/cli/import_.py": "a machine that only captures has no memories",
    "surfaces/cli/floor_edits.py": "the agent is for changes that are proposed or approved",
    "surfaces/cli/floor_pages.py": "the agent is for changes of its own page",
    "surfaces/cli/floor_common.py": "only completion of names needs the home here",
    "surfaces/cli/join.py": "the servers of the AT Protocol are for `--handle` alone",
    "surfaces/cli/maintenance.py": "a thin machine's status needs http, a home's own does not",
    "surfaces/web/app.py": "the sign-in with an OpenID provider is for homes that name one",
    "surfaces/cli/mcp.py": "the package `mcp` is optional",
    "surfaces/mcp/answers.py": "the agent is for proposals, and few calls propose",
    "surfaces/cli/memory_common.py": "only completion of ids needs the home here",
    "surfaces/cli/models.py": "the miner, 20 ms, is for one command",
    "service/client.py": "the types of an answer, 10 ms, are loaded while the resident home makes it",
    "surfaces/cli/recall.py": "what it prints with, 25 ms, is loaded while it waits; what --why-not reads takes 150 ms",
    "surfaces/cli/recall_output.py": "the labels of memories are in recall, 10 ms",
    "surfaces/cli/search.py": "only `show` of a memory needs the commands of memories",
    "surfaces/cli/skills.py": "help needs no agent",
    "surfaces/cli/serve.py": "a thin machine has no code of a resident home",
    "surfaces/health_checks.py": "the miner, 20 ms, is for homes that mine; a thin machine has no agent",
    "surfaces/http/server.py": "the package `mcp` is optional",
    "surfaces/proxy/listener.py": "the packages of the server are optional",
    "surfaces/mail/listener.py": "the agent, 0.1 s, is for homes with mail",
    "surfaces/telegram/listener.py": "the agent, 0.1 s, is for homes with a bot",
    "surfaces/web/listener.py": "the packages of the server are optional",
    "surfaces/cli/import_home.py": "only a preview without a home opens another one",
}


def contract(name: str) -> dict[str, str]:
    parser = configparser.ConfigParser()
    parser.read(ROOT / ".importlinter")
    return dict(parser[name])


def layers() -> list[list[str]]:
    """The layers of the contract, lowest first; a line holds siblings."""
    lines = contract("importlinter:contract:layers")["layers"].split("\n")
    return [re.split(r"\s*\|\s*", line.strip()) for line in reversed(lines) if line.strip()]


def slices_of_page() -> list[str]:
    table = PAGE.split("## The slices")[1].split("\n## ")[0]
    return re.findall(r"^\| `(\w+)` \|", table, re.M)


def imports(path: Path) -> set[str]:
    """The top-level slices that a file imports."""
    tree = parse(path)
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "perdure":
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("perdure."):
            names.add(str(node.module).split(".")[1])
    return names


def files(slice_name: str) -> list[Path]:
    module = PACKAGE / f"{slice_name}.py"
    return [module] if module.is_file() else sorted((PACKAGE / slice_name).rglob("*.py"))


def arrows() -> list[tuple[str, str, bool]]:
    """(from, to, is it an import) for each arrow of the picture."""
    picture = PAGE.split("```mermaid")[1].split("```")[0]
    found = re.findall(r"^\s+(\w+)(?:\[.*?\])? (-->|-\.->)(?:\|.*?\|)? (\w+)", picture, re.M)
    return [(start, end, line == "-->") for start, line, end in found]


def test_the_page_lists_the_layers_in_order() -> None:
    order = slices_of_page()
    assert sorted(order) == sorted(name for layer in layers() for name in layer)
    rank = {name: number for number, layer in enumerate(layers()) for name in layer}
    assert [rank[name] for name in order] == sorted(rank[name] for name in order)


def test_every_slice_exists_and_is_listed() -> None:
    found = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert found - {"__init__", "testing", "samples"} == set(slices_of_page())


@pytest.mark.parametrize(("start", "end", "is_import"), arrows())
def test_an_arrow_of_the_picture_is_true(start: str, end: str, is_import: bool) -> None:
    """A solid arrow is an import one way or the other; a dotted one is none in the direction of the data's return."""
    forward = any(start in imports(path) for path in files(end))
    backward = any(end in imports(path) for path in files(start))
    assert (forward or backward) if is_import else not forward or not backward


def test_the_picture_has_arrows() -> None:
    assert len(arrows()) > 10


def test_sql_stands_in_named_places() -> None:
    strangers = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if path.name not in ("store.py", "sqlite.py") and path.relative_to(PACKAGE).parts[0] not in ("index", "jobs.py")
        if any(
            isinstance(node, ast.Constant) and isinstance(node.value, str) and SQL.search(node.value)
            for node in ast.walk(parse(path))
        )
    }
    assert strangers == set(SQL_FILES)


def test_few_imports_stand_inside_functions() -> None:
    """At most one of our own for 1,000 lines, outside of the paths that start up often."""
    n_lines = n_imports = 0
    for path in PACKAGE.rglob("*.py"):
        if str(path.relative_to(PACKAGE)) in START_UP:
            continue
        text = path.read_text()
        n_lines += text.count("\n")
        functions = [node for node in ast.walk(parse(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        n_imports += sum(
            isinstance(node, ast.ImportFrom) and (node.module or "").startswith("perdure")
            for function in functions
            for node in ast.iter_child_nodes(function)
        )
    assert 1000 * n_imports / n_lines <= 1


def test_the_files_that_import_later_are_named() -> None:
    later = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if any(
            isinstance(node, ast.ImportFrom) and (node.module or "").startswith("perdure")
            for function in ast.walk(parse(path))
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
            for node in ast.walk(function)
        )
    }
    assert later - START_UP == set(LATER)
