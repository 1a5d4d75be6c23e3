"""Chat through an installed client, run headless with the person's own subscription: `claude -p` and `codex exec`.

Each call is a process of its own in an empty folder, without tools, hooks, MCP servers, settings or memory of the
client, and it stores no session: so nothing of ours is captured from it or recalled into it. The prompt goes over
standard input and files of that folder, never over the command line. Building a command and reading an output are pure.
Perdure's own tools cannot be offered here.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from perdure.config import read_variable
from perdure.errors import ModelBusy, ModelCancelled, ModelFault, ModelRefused, ModelUnreachable, RuntimeMissing
from perdure.models import client_limits, sdk_calls
from perdure.models.cancel import POLL_S
from perdure.models.chat import (
    ChatMessage,
    ChatReply,
    StopReason,
    TokenUsage,
    ToolSpec,
    check_reply,
    estimate_usage,
    is_closed,
)
from perdure.models.settings import CLIENT_OVERHEAD_TOKENS, ModelSettings
from perdure.text import clip, one_line

CLAUDE, CODEX = CLIENT_OVERHEAD_TOKENS
_PROGRAMS = {CLAUDE: "claude", CODEX: "codex"}
_MAX_OUTPUT_BYTES = 16_000_000
_MESSAGE_CHARS = 300  # of a client's error message
_PASSED_VARIABLES = (  # what a client needs to find its login and the network; keys only if the settings name one
    "HOME", "PATH", "USER", "LOGNAME", "LANG", "LC_ALL", "TMPDIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME",
    "XDG_RUNTIME_DIR", "CLAUDE_CONFIG_DIR", "CLAUDE_CODE_OAUTH_TOKEN", "CODEX_HOME", "HTTP_PROXY", "HTTPS_PROXY",
    "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS",
)  # fmt: skip
_CLAUDE_VARIABLES = dict.fromkeys(
    (
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
        "CLAUDE_CODE_DISABLE_AUTO_MEMORY",
        "DISABLE_AUTOUPDATER",
        "DISABLE_TELEMETRY",
        "DISABLE_ERROR_REPORTING",
    ),
    "1",
)
_CODEX_FEATURES = (
    "hooks", "shell_tool", "unified_exec", "multi_agent", "goals", "view_image", "image_generation", "apps", "plugins",
    "memories", "skill_search", "sleep_tool", "tool_suggest",
)  # fmt: skip
_SCHEMA_REQUEST = "Answer with one JSON value that follows this JSON schema, and nothing else:"
_SYSTEM_FILE, _SCHEMA_FILE = "system.md", "schema.json"
_PROVIDER = "perdure"  # of Codex: the endpoint that the settings name
_KEY_VARIABLES = {CLAUDE: "ANTHROPIC_API_KEY", CODEX: "PERDURE_CODEX_KEY"}


class ClientCommand(NamedTuple):
    """One run of a client: its command, its own environment variables, its input, and the files in its folder."""

    arguments: list[str]
    variables: Mapping[str, str]
    prompt: str
    files: Mapping[str, str]


@dataclass(frozen=True)
class ClientOutput:
    """What a client printed about its answer."""

    text: str = ""
    usage: TokenUsage | None = None  # None: it reported none
    model: str = ""
    stop: StopReason = "end"
    error: str = ""  # its message; "" if it answered
    status: int = 0  # HTTP status of the endpoint behind it, if it says that


# commands, pure -----------------------------------------------------------------------------------------------------


def build_command(
    client: str, settings: ModelSettings, messages: Sequence[ChatMessage], schema: Mapping[str, Any] | None
) -> ClientCommand:
    """Return the run of a client that answers these messages."""
    system_text = "\n\n".join(message.text for message in messages if message.role == "system")
    files = {_SYSTEM_FILE: system_text or "Answer the message."}
    prompt = render_conversation([message for message in messages if message.role != "system"])
    if schema is not None and not (client == CLAUDE or is_closed(schema)):
        prompt = f"{prompt}\n\n{_SCHEMA_REQUEST}\n{json.dumps(schema)}"
        schema = None
    if client == CLAUDE:
        return ClientCommand(_build_claude_line(settings, schema), _build_claude_variables(settings), prompt, files)
    files |= {_SCHEMA_FILE: json.dumps(schema)} if schema is not None else {}
    variables = {_KEY_VARIABLES[CODEX]: settings.key} if settings.key else {}
    return ClientCommand(_build_codex_line(settings, with_schema=schema is not None), variables, prompt, files)


def render_conversation(messages: Sequence[ChatMessage]) -> str:
    """Return a conversation as one prompt: a single message as it is, several with their roles.

    >>> render_conversation([ChatMessage("user", "Who?")])
    'Who?'
    """
    if len(messages) == 1:
        return messages[0].text
    parts = []
    for message in messages:
        calls = "".join(f"\n(called {call.name} with {json.dumps(call.input)})" for call in message.calls)
        role = f"{message.role}, failed" if message.is_error else message.role
        parts.append(f"[{role}]\n{message.text}{calls}")
    return "\n\n".join([*parts, "[assistant]"])


def _build_claude_line(settings: ModelSettings, schema: Mapping[str, Any] | None) -> list[str]:
    line = ["-p", "--output-format", "json", "--tools", "", "--strict-mcp-config", "--setting-sources", ""]
    line += ["--no-session-persistence", "--disable-slash-commands", "--settings", '{"disableAllHooks": true}']
    line += ["--system-prompt-file", _SYSTEM_FILE]
    line += ["--model", settings.model] if settings.model else []
    line += ["--effort", settings.effort] if settings.effort else []
    return [*line, *(["--json-schema", json.dumps(schema)] if schema is not None else [])]


def _build_claude_variables(settings: ModelSettings) -> dict[str, str]:
    variables = {**_CLAUDE_VARIABLES, "CLAUDE_CODE_MAX_RETRIES": str(sdk_calls.MAX_RETRIES)}
    variables["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] = str(settings.max_output_tokens)
    variables |= {"MAX_THINKING_TOKENS": "0"} if settings.thinking == "off" else {}
    variables |= {"ANTHROPIC_BASE_URL": settings.url.geturl()} if settings.url.hostname else {}
    return variables | ({_KEY_VARIABLES[CLAUDE]: settings.key} if settings.key else {})


def _build_codex_line(settings: ModelSettings, *, with_schema: bool) -> list[str]:
    line = ["exec", "--json", "--skip-git-repo-check", "--ephemeral", "--ignore-user-config", "--ignore-rules"]
    line += ["--sandbox", "read-only"]
    values = {f"features.{name}": "false" for name in _CODEX_FEATURES}
    values |= {"model_instructions_file": json.dumps(_SYSTEM_FILE), "project_doc_max_bytes": "0"}
    values |= {"web_search": '"disabled"', "analytics.enabled": "false", "check_for_update_on_startup": "false"}
    values |= {"model_reasoning_effort": json.dumps(settings.effort)} if settings.effort else {}
    if settings.url.hostname:
        endpoint = {"name": _PROVIDER, "base_url": settings.url.geturl(), "wire_api": "responses"}
        endpoint |= {"env_key": _KEY_VARIABLES[CODEX]} if settings.key else {}
        values |= {f"model_providers.{_PROVIDER}.{name}": json.dumps(value) for name, value in endpoint.items()}
        values |= {"model_provider": json.dumps(_PROVIDER)}
    for name, value in values.items():
        line += ["-c", f"{name}={value}"]
    line += ["--model", settings.model] if settings.model else []
    line += ["--output-schema", _SCHEMA_FILE] if with_schema else []
    return [*line, "-"]


# outputs, pure ------------------------------------------------------------------------------------------------------


def read_output(client: str, raw: str) -> ClientOutput | None:
    """Return what a client printed about its answer; None if it printed nothing of the kind."""
    rows = [row for line in raw.splitlines() if isinstance(row := _parse_line(line), dict)]
    return _read_claude_rows(rows) if client == CLAUDE else _read_codex_rows(rows)


def _parse_line(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


_CLAUDE_STOPS: Mapping[str, StopReason] = {"max_tokens": "length", "refusal": "refused"}


def _read_claude_rows(rows: Sequence[Mapping[str, Any]]) -> ClientOutput | None:
    row = next((row for row in reversed(rows) if row.get("type") == "result"), None)
    if row is None:
        return None
    answer = row.get("result")
    if row.get("structured_output") is not None:
        answer = json.dumps(row["structured_output"])
    usage = row.get("usage") or {}
    counts = TokenUsage(
        *(
            _to_count(usage.get(name))
            for name in ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        )
    )
    is_error = bool(row.get("is_error")) or row.get("subtype") not in (None, "success")
    message = str(answer or "; ".join(map(str, row.get("errors") or [])) or row.get("subtype")) if is_error else ""
    return ClientOutput(
        "" if is_error else str(answer or ""),
        counts if counts.n_tokens else None,
        next(iter(row.get("modelUsage") or {}), ""),
        _CLAUDE_STOPS.get(str(row.get("stop_reason")), "end"),
        message,
        _to_count(row.get("api_error_status")),
    )


def _read_codex_rows(rows: Sequence[Mapping[str, Any]]) -> ClientOutput | None:
    output: ClientOutput | None = None
    text, error = "", ""
    for row in rows:
        item = row.get("item") or {}
        if row.get("type") == "item.completed" and item.get("type") == "agent_message":
            text = str(item.get("text") or "")
        elif row.get("type") == "error":
            error = str(row.get("message") or "failed")
        elif row.get("type") == "turn.failed":
            error = str((row.get("error") or {}).get("message") or error or "failed")
            output = ClientOutput(error=error, status=_find_status(error))
        elif row.get("type") == "turn.completed":
            output = ClientOutput(text, _read_codex_usage(row.get("usage") or {}))
    return output or (ClientOutput(error=error, status=_find_status(error)) if error else None)


def _read_codex_usage(usage: Mapping[str, Any]) -> TokenUsage | None:
    n_input, n_read = _to_count(usage.get("input_tokens")), _to_count(usage.get("cached_input_tokens"))
    n_written = _to_count(usage.get("cache_write_input_tokens"))
    counts = TokenUsage(max(0, n_input - n_read - n_written), _to_count(usage.get("output_tokens")), n_read, n_written)
    return counts if counts.n_tokens else None


def _to_count(value: Any) -> int:
    return value if type(value) is int and value >= 0 else 0


_STATUS = re.compile(r"\bstatus:? (\d{3})\b")


def _find_status(message: str) -> int:
    match = _STATUS.search(message)
    return int(match[1]) if match else 0


# the call -----------------------------------------------------------------------------------------------------------


def to_fault(client: str, output: ClientOutput, now: datetime) -> ModelFault:
    """Return the error for a client that gave no answer. One at its limit says when it is free again."""
    message = f"{client}: {clip(one_line(output.error, _MESSAGE_CHARS), _MESSAGE_CHARS)}"
    if output.status == 429 or client_limits.is_limit(output.error):
        busy = ModelBusy(message)
        busy.free_at = client_limits.find_free_time(output.error, now)
        return busy
    return ModelBusy(message) if output.status >= 500 else ModelRefused(message)


class ClientChat:
    """One installed client. Nothing runs between calls."""

    def __init__(
        self, settings: ModelSettings, *, now: Callable[[], datetime] = lambda: datetime.now().astimezone()
    ) -> None:
        """Store the settings; nothing runs yet. now: aware, in the time zone in which the client tells times."""
        self._settings = settings
        self._client = settings.name.partition(":")[0]
        self._now = now
        self.name = settings.name
        self.window_tokens = settings.window_tokens

    def reply(
        self,
        messages: Sequence[ChatMessage],
        *,
        schema: dict[str, Any] | None = None,
        tools: Sequence[ToolSpec] = (),
        on_text: Callable[[str], None] | None = None,
        on_thought: Callable[[str], None] | None = None,  # noqa: ARG002 - a client shows none
        timeout_s: float | None = None,
        cancel: threading.Event | None = None,
    ) -> ChatReply:
        """Return the model's answer; see `Chat.reply`. It arrives in one piece.

        Raises ModelRefused for tools and images.
        """
        if tools:
            raise ModelRefused(f"{self._client} offers no tools; set another provider for this role")
        if any(message.images for message in messages):
            raise ModelRefused(f"{self._client} takes no images; set another provider for this role")
        program = find_program(self._client, self._settings.program)
        deadline = sdk_calls.start_deadline(self._settings.timeout_s if timeout_s is None else timeout_s)
        command = build_command(self._client, self._settings, messages, schema)
        raw, complaint = _run(program, command, deadline, cancel)
        output = read_output(self._client, raw)
        if output is None:
            detail = one_line(complaint.strip() or raw.strip() or "it printed nothing", _MESSAGE_CHARS)
            output = ClientOutput(error=self._hide_key(detail))
        if output.error:
            fault = to_fault(self._client, replace(output, error=self._hide_key(output.error)), self._now())
            fault.usage = output.usage
            raise fault
        if on_text and output.text:
            on_text(output.text)
        usage = output.usage or estimate_usage(messages, output.text)
        model = output.model or self._settings.model or self._client
        reply = ChatReply(output.text, None, (), usage, model, output.stop, is_usage_reported=output.usage is not None)
        return check_reply(reply, schema)

    def _hide_key(self, message: str) -> str:
        return message.replace(self._settings.key, "[key]") if self._settings.key else message


def find_program(client: str, program: str = "") -> str:
    """Return the path of a client's program: the one in the settings, or the one on the PATH. Raises RuntimeMissing."""
    name = str(Path(program).expanduser()) if program else _PROGRAMS[client]
    path = shutil.which(name)
    if path is None:
        raise RuntimeMissing(
            f"{client}: there is no program {name}; set `program` of its role to the path of the client"
        )
    return path


def _run(
    program: str, command: ClientCommand, deadline: sdk_calls.CallDeadline, cancel: threading.Event | None
) -> tuple[str, str]:
    """Run a client in an empty folder; return its output and its complaints.

    Raises ModelLate, ModelUnreachable, ModelCancelled.
    """
    environment = {name: value for name in _PASSED_VARIABLES if (value := read_variable(name))}
    with tempfile.TemporaryDirectory(prefix="perdure-ask-") as folder:
        for name, text in command.files.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        with _start(program, command, folder, {**environment, **command.variables}) as process:
            output = _wait_for_output(process, command.prompt.encode(), deadline, cancel)
    if output is None:
        raise deadline.make_fault(Path(program).name)
    if process.returncode < 0:
        raise ModelUnreachable(f"{Path(program).name} was killed by signal {-process.returncode}")
    raw, complaint = (part[:_MAX_OUTPUT_BYTES].decode("utf-8", "replace") for part in output)
    return raw, complaint


def _wait_for_output(
    process: subprocess.Popen[bytes], prompt: bytes, deadline: sdk_calls.CallDeadline, cancel: threading.Event | None
) -> tuple[bytes, bytes] | None:
    """Return the output of a client and its complaints; None after the deadline. Raises ModelCancelled."""
    unsent: bytes | None = prompt
    while cancel is None or not cancel.is_set():
        try:
            return process.communicate(unsent, timeout=deadline.left_s if cancel is None else POLL_S)
        except subprocess.TimeoutExpired:
            if deadline.is_over:
                return None
            unsent = None  # the next call goes on with what this one began to send
    raise ModelCancelled("while it was answering")


@contextlib.contextmanager
def _start(
    program: str, command: ClientCommand, folder: str, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a client in a process group of its own, which ends with the block."""
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    try:
        process = subprocess.Popen(
            [program, *command.arguments], cwd=folder, env=environment, start_new_session=True, **pipes
        )
    except OSError as error:
        raise ModelUnreachable(f"{program} cannot be started ({error.strerror})") from error
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
