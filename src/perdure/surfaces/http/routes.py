"""The table of operations, and the OpenAPI 3.1 document made from it.

The application and the document both use this table and its shapes, so that they cannot differ.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import msgspec

import perdure
from perdure.surfaces.http import admin, athena, captures, floor, forget, jobs, memories, runs, search, shapes, teams
from perdure.surfaces.http.calls import ApiOperation
from perdure.surfaces.http.responses import Json

PUBLIC_OPERATIONS: tuple[ApiOperation, ...] = (  # without a credential
    ApiOperation(
        "GET", "/api/alive", admin.check_alive, "Check that the server answers", response_shape=shapes.AliveJson
    ),
    ApiOperation("GET", "/api/openapi.json", admin.check_alive, "This document"),
)
EVENT_STREAM = ApiOperation(
    "GET", "/api/events", admin.check_alive, "The caller's own events, as they happen", content_type="text/event-stream"
)
OPERATIONS: tuple[ApiOperation, ...] = (
    ApiOperation(
        "GET",
        "/api/me",
        admin.read_identity,
        "Show the user and machine of this credential",
        response_shape=shapes.IdentityJson,
    ),
    ApiOperation(
        "POST",
        "/api/runs",
        captures.capture_lines,
        "Store bytes of a session",
        query_shape=shapes.CaptureQuery,
        body_shape=shapes.CaptureBody,
        response_shape=shapes.CaptureJson,
        status=202,
        pool="capture",
        is_raw=True,
        uses_caller_home=False,
        repeat=captures.repeat_capture,
        extra_statuses=(409,),
    ),
    ApiOperation(
        "POST",
        "/api/runs/search",
        search.search_runs,
        "Search turns",
        body_shape=shapes.SearchBody,
        response_shape=shapes.SearchResultJson,
    ),
    ApiOperation(
        "GET",
        "/api/runs",
        runs.list_conversation,
        "List the runs of a conversation",
        query_shape=shapes.ConversationQuery,
        response_shape=shapes.RunListJson,
        extra_statuses=(404,),
    ),
    ApiOperation(
        "GET",
        "/api/runs/forest",
        runs.list_forest,
        "List the newest runs as trees",
        query_shape=shapes.RunForestQuery,
        response_shape=shapes.RunForestJson,
        extra_statuses=(404,),
    ),
    ApiOperation("GET", "/api/runs/{run_id}", runs.read_run, "One run", response_shape=shapes.RunDetailJson),
    ApiOperation(
        "DELETE",
        "/api/runs/{run_id}",
        runs.forget_run,
        "Forget the turns of a run",
        query_shape=shapes.ForgetQuery,
        pool="write",
    ),
    ApiOperation(
        "POST",
        "/api/forget",
        forget.forget,
        "Forget turns and memories",
        body_shape=shapes.ForgetBody,
        response_shape=shapes.ForgetReportJson,
        pool="write",
        extra_statuses=(404,),
    ),
    ApiOperation(
        "GET",
        "/api/runs/{run_id}/jsonl",
        runs.read_jsonl,
        "The bytes of a run",
        query_shape=shapes.JsonlQuery,
        content_type=runs.JSONL_TYPE,
    ),
    ApiOperation(
        "GET",
        "/api/runs/{run_id}/transcript",
        runs.read_transcript,
        "The turns of a run",
        response_shape=shapes.TranscriptJson,
    ),
    ApiOperation(
        "GET",
        "/api/runs/{run_id}/descendants",
        runs.list_descendants,
        "The runs below a run",
        query_shape=shapes.PageQuery,
        response_shape=shapes.RunListJson,
    ),
    ApiOperation("GET", "/api/resolve/{identifier}", runs.resolve_id, "Resolve an id"),
    ApiOperation(
        "POST",
        "/api/recall",
        search.recall_for_message,
        "Recall turns and memories for a message",
        body_shape=shapes.RecallBody,
        response_shape=shapes.RecallJson,
        extra_statuses=(404,),
        late_body=search.LATE_RECALL,
    ),
    ApiOperation(
        "POST",
        "/api/hook",
        search.answer_hook,
        "Answer the event of a client's hook",
        body_shape=shapes.HookBody,
        response_shape=shapes.HookReplyJson,
        late_body=search.EMPTY_HOOK_REPLY,
    ),
    ApiOperation(
        "POST",
        "/api/context",
        search.build_context,
        "Build the context that a model reads for a message",
        body_shape=shapes.ContextBody,
        response_shape=shapes.ContextJson,
    ),
    ApiOperation(
        "GET",
        "/api/why",
        search.explain_last_recall,
        "The last recall that a session was given",
        query_shape=shapes.WhyQuery,
        response_shape=shapes.InjectionJson,
        extra_statuses=(404,),
    ),
    ApiOperation(
        "GET",
        "/api/projects",
        runs.list_projects,
        "List the projects of the runs that the caller may read",
        query_shape=shapes.PageQuery,
        response_shape=shapes.ProjectListJson,
    ),
    ApiOperation(
        "GET",
        "/api/memories",
        memories.list_memories,
        "List memories",
        query_shape=shapes.MemoryListQuery,
        response_shape=shapes.MemoryListJson,
    ),
    ApiOperation(
        "POST",
        "/api/memories",
        memories.remember_statement,
        "Store a memory",
        body_shape=shapes.RememberBody,
        response_shape=shapes.MemoryDetailJson,
        status=201,
        pool="write",
        repeat=memories.repeat_remember,
    ),
    ApiOperation(
        "POST", "/api/memories/search", memories.search_memories, "Search memories", body_shape=shapes.MemorySearchBody
    ),
    ApiOperation(
        "POST",
        "/api/memories/settle",
        memories.settle_lines,
        "Settle lines of a session",
        body_shape=shapes.SettleBody,
        pool="write",
    ),
    ApiOperation(
        "GET",
        "/api/memories/{memory_id}",
        memories.read_memory,
        "One memory with its sources",
        response_shape=shapes.MemoryDetailJson,
    ),
    ApiOperation(
        "PATCH",
        "/api/memories/{memory_id}",
        memories.change_memory,
        "Change a memory",
        body_shape=shapes.MemoryChangeBody,
        response_shape=shapes.MemoryDetailJson,
        pool="write",
    ),
    ApiOperation("DELETE", "/api/memories/{memory_id}", memories.forget_memory, "Forget a memory", pool="write"),
    ApiOperation(
        "GET",
        "/api/cards",
        floor.list_cards,
        "The cards",
        query_shape=shapes.PageQuery,
        response_shape=shapes.CardListJson,
    ),
    ApiOperation(
        "POST",
        "/api/cards",
        floor.add_card,
        "Add a card",
        body_shape=shapes.CardBody,
        response_shape=shapes.CardDetailJson,
        status=201,
        pool="write",
        repeat=floor.repeat_add_card,
    ),
    ApiOperation(
        "DELETE",
        "/api/cards/{card_id}",
        floor.remove_card,
        "Remove a card",
        query_shape=shapes.CardRemovalQuery,
        pool="write",
    ),
    ApiOperation(
        "GET",
        "/api/floor",
        floor.read_floor,
        "The floor that every session gets",
        query_shape=shapes.FloorQuery,
        response_shape=shapes.FloorJson,
    ),
    ApiOperation(
        "GET", "/api/floor/{page:path}", floor.read_page, "A page of the floor", response_shape=shapes.FloorPageJson
    ),
    ApiOperation(
        "PUT",
        "/api/floor/{page:path}",
        floor.write_page,
        "Write a page of the floor",
        body_shape=shapes.FloorPageBody,
        response_shape=shapes.FloorPageJson,
        pool="write",
    ),
    ApiOperation(
        "GET",
        "/api/machines",
        admin.list_machines,
        "The machines of a user",
        query_shape=shapes.MachineListQuery,
        response_shape=shapes.MachineListJson,
        extra_statuses=(403,),
    ),
    ApiOperation(
        "POST",
        "/api/machines",
        admin.register_machine,
        "Register a machine",
        body_shape=shapes.MachineBody,
        response_shape=shapes.NewMachineJson,
        status=201,
        pool="write",
        repeat=admin.repeat_register,
        extra_statuses=(403,),
    ),
    ApiOperation(
        "DELETE",
        "/api/machines/{machine_id}",
        admin.revoke_machine,
        "Revoke a machine",
        response_shape=shapes.RevokedMachineJson,
        pool="slow",
    ),
    ApiOperation(
        "POST",
        "/api/join",
        admin.join_machine,
        "Register a machine by the proof of a DID",
        body_shape=shapes.JoinBody,
        response_shape=shapes.NewMachineJson,
        status=201,
        pool="sign-in",
        is_public=True,
        uses_caller_home=False,
        extra_statuses=(403,),
    ),
    ApiOperation(
        "GET",
        "/api/grants",
        admin.list_grants,
        "List grants",
        query_shape=shapes.GrantListQuery,
        response_shape=shapes.GrantListJson,
    ),
    ApiOperation(
        "POST",
        "/api/grants",
        admin.share_scope,
        "Make a grant",
        body_shape=shapes.GrantBody,
        response_shape=shapes.GrantJson,
        status=201,
        pool="write",
        repeat=admin.repeat_share,
        extra_statuses=(404,),
    ),
    ApiOperation(
        "DELETE",
        "/api/grants/{grant_id}",
        admin.revoke_grant,
        "Revoke or decline a grant",
        response_shape=shapes.GrantJson,
        pool="write",
    ),
    ApiOperation(
        "GET",
        "/api/teams",
        teams.list_teams,
        "List teams",
        query_shape=shapes.PageQuery,
        response_shape=shapes.TeamListJson,
    ),
    ApiOperation(
        "POST",
        "/api/teams",
        teams.set_rule,
        "Make a team, or change its rule",
        body_shape=shapes.TeamBody,
        response_shape=shapes.TeamJson,
        pool="write",
        is_admin=True,
    ),
    ApiOperation(
        "POST",
        "/api/teams/{team}/members",
        teams.add_member,
        "Add a member to a team",
        body_shape=shapes.MemberBody,
        response_shape=shapes.TeamJson,
        pool="write",
        is_admin=True,
    ),
    ApiOperation(
        "DELETE",
        "/api/teams/{team}/members/{member}",
        teams.remove_member,
        "End a membership",
        response_shape=shapes.TeamJson,
        pool="write",
        is_admin=True,
    ),
    ApiOperation(
        "GET",
        "/api/notes",
        teams.list_notes,
        "List the notes of teams",
        query_shape=shapes.NoteListQuery,
        response_shape=shapes.NoteListJson,
        extra_statuses=(404,),
    ),
    ApiOperation(
        "POST",
        "/api/notes/{note_id}/review",
        teams.review_note,
        "Accept or reject a note",
        body_shape=shapes.ReviewBody,
        response_shape=shapes.NoteJson,
        pool="write",
    ),
    ApiOperation("GET", "/api/access", teams.read_access, "Show who may read what", response_shape=shapes.AccessJson),
    ApiOperation(
        "GET",
        "/api/jobs",
        jobs.list_jobs,
        "List jobs and their times",
        response_shape=shapes.JobListJson,
        is_admin=True,
    ),
    ApiOperation(
        "POST",
        "/api/jobs",
        jobs.add_job,
        "Add a job",
        body_shape=shapes.NewJobBody,
        response_shape=shapes.JobJson,
        status=201,
        pool="write",
        extra_statuses=(404, 409),
        is_admin=True,
    ),
    ApiOperation("GET", "/api/jobs/{name}", jobs.read_job, "Show a job", response_shape=shapes.JobJson, is_admin=True),
    ApiOperation(
        "PUT",
        "/api/jobs/{name}",
        jobs.change_job,
        "Change a job",
        body_shape=shapes.JobBody,
        response_shape=shapes.JobJson,
        pool="write",
        is_admin=True,
    ),
    ApiOperation("DELETE", "/api/jobs/{name}", jobs.remove_job, "Remove a job", pool="write", is_admin=True),
    ApiOperation(
        "POST", "/api/jobs/{name}/trigger", jobs.trigger_job, "Start a job now", status=202, pool="write", is_admin=True
    ),
    ApiOperation("POST", "/api/jobs/{name}/pause", jobs.pause_job, "Pause a job", pool="write", is_admin=True),
    ApiOperation("POST", "/api/jobs/{name}/resume", jobs.resume_job, "Resume a job", pool="write", is_admin=True),
    ApiOperation(
        "GET",
        "/api/jobs/{name}/runs",
        jobs.list_runs,
        "List the runs of a job",
        query_shape=shapes.PageQuery,
        response_shape=shapes.JobRunListJson,
        is_admin=True,
    ),
    ApiOperation("GET", "/api/jobs/{name}/runs/{run}", jobs.read_run, "Show a run of a job", is_admin=True),
    ApiOperation(
        "POST",
        "/api/jobs/{name}/runs/{run}/cancel",
        jobs.cancel_run,
        "End a run of a job",
        status=202,
        pool="write",
        is_admin=True,
    ),
    ApiOperation(
        "GET",
        "/api/health",
        admin.read_health,
        "Check that the data path works",
        response_shape=shapes.HealthJson,
        pool="slow",
        uses_caller_home=False,
    ),
    ApiOperation(
        "POST",
        "/api/v1/sessions",
        athena.open_session,
        "Open a session of an agent of workflows, as at an Athena server",
        body_shape=shapes.AthenaSessionBody,
        pool="write",
    ),
    ApiOperation(
        "POST",
        "/api/v1/sessions/{session_id}/events",
        athena.store_event,
        "Store an event of the agent",
        body_shape=shapes.AthenaEventBody,
        pool="write",
    ),
    ApiOperation(
        "GET",
        "/api/v1/sessions/{session_id}/context",
        athena.read_context,
        "Recent events and the hottest topics of the agent",
        query_shape=shapes.AthenaContextQuery,
        pool="write",
    ),
    ApiOperation(
        "POST",
        "/api/v1/sessions/{session_id}/context/search",
        athena.search_context,
        "Search the turns of the agent",
        body_shape=shapes.AthenaSearchBody,
    ),
    ApiOperation("GET", "/api/v1/health", athena.check_health, "Check the memory of workflows"),
)


_SCHEMA_REF = "#/components/schemas/{name}"
_STATUS_TEXTS = {
    400: "The request is not valid", 401: "The credential is missing, unknown or revoked", 403: "Only for an admin",
    404: "Not found, or not visible to the caller", 408: "The body did not come in time",
    409: "The request conflicts with the present state", 413: "Too large: send it in pieces",
    429: "Too many requests: see Retry-After",
    503: "Not possible now: see Retry-After",
}  # fmt: skip
_ERROR_SCHEMA: Json = {
    "type": "object", "required": ["error", "_links", "next_actions"],
    "properties": {
        "error": {
            "type": "object", "required": ["code", "message"],
            "properties": {"code": {"type": "string"}, "message": {"type": "string"}},
        },
        "_links": {"type": "object", "additionalProperties": {"type": "string"}},
        "next_actions": {"type": "array", "items": {"type": "object"}},
    },
}  # fmt: skip


@functools.cache
def build_openapi() -> Json:
    """Build the whole document."""
    operations = (*PUBLIC_OPERATIONS, EVENT_STREAM, *OPERATIONS)
    shapes_used = [
        shape
        for operation in operations
        for shape in (operation.body_shape, operation.response_shape)
        if shape is not None
    ]
    _, schemas = msgspec.json.schema_components(shapes_used, ref_template=_SCHEMA_REF)
    paths: Json = {}
    for operation in operations:
        paths.setdefault(_document_path(operation), {})[operation.method.lower()] = _describe_operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Perdure", "version": perdure.__version__, "description": perdure.__doc__ or ""},
        "security": [{"machine": []}],
        "paths": paths,
        "components": {
            "schemas": {**schemas, "Failed": _ERROR_SCHEMA},
            "securitySchemes": {"machine": {"type": "http", "scheme": "bearer"}},
        },
    }


def _describe_operation(operation: ApiOperation) -> Json:
    statuses = sorted({*operation.extra_statuses, *_list_statuses(operation)})
    description: Json = {
        "operationId": _operation_id(operation),
        "summary": operation.summary,
        "parameters": [*_list_path_params(operation), *_list_query_params(operation), *_list_header_params(operation)],
        "responses": {
            str(operation.status): _describe_answer(operation),
            **{str(status): _describe_refusal(status) for status in statuses},
        },
    }
    if operation.body_shape is not None:
        description["requestBody"] = {"required": True, "content": _describe_body(operation)}
    if operation in PUBLIC_OPERATIONS or operation.is_public:
        description["security"] = []
    return description


def _document_path(operation: ApiOperation) -> str:
    """Return the path as the document writes it, without the converter of a parameter."""
    return operation.path.replace(":path}", "}")


def _list_statuses(operation: ApiOperation) -> set[int]:
    if operation in PUBLIC_OPERATIONS:
        return set()
    statuses = {400, 429, 503} | (set() if operation.is_public else {401})
    statuses |= {403} if operation.is_admin else set()
    statuses |= {404} if _list_path_params(operation) else set()
    statuses |= {408, 413} if operation.body_shape is not None else set()
    return statuses | ({409} if operation.repeat is not None else set())


def _describe_body(operation: ApiOperation) -> Json:
    json_content = {"application/json": {"schema": _reference_shape(operation.body_shape)}}
    line_content = {"schema": {"type": "string", "contentEncoding": "binary", "description": "complete lines of JSON"}}
    return {"application/x-ndjson": line_content, **json_content} if operation.is_raw else json_content


def _describe_answer(operation: ApiOperation) -> Json:
    schema: Json = (
        _reference_shape(operation.response_shape) if operation.response_shape is not None else {"type": "object"}
    )
    if operation.content_type != "application/json":
        schema = {"type": "string"}
    return {"description": operation.summary, "content": {operation.content_type: {"schema": schema}}}


def _describe_refusal(status: int) -> Json:
    headers: Json = {"Retry-After": {"schema": {"type": "integer"}}} if status in (429, 503) else {}
    content = {"application/json": {"schema": {"$ref": _SCHEMA_REF.format(name="Failed")}}}
    return {"description": _STATUS_TEXTS[status], "content": content, **({"headers": headers} if headers else {})}


def _reference_shape(shape: Any) -> Json:
    (schema,), _ = msgspec.json.schema_components([shape], ref_template=_SCHEMA_REF)
    return dict(schema)


def _list_path_params(operation: ApiOperation) -> list[Json]:
    names = re.findall(r"{(\w+)}", _document_path(operation))
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _list_query_params(operation: ApiOperation) -> list[Json]:
    """Describe each field of the query's shape.

    With a raw body no field is required here, because a JSON body may hold them instead.
    """
    if operation.query_shape is shapes.NoQuery:
        return []
    schema = msgspec.json.schema(operation.query_shape)["$defs"][operation.query_shape.__name__]
    required = set() if operation.is_raw else set(schema.get("required", ()))
    return [
        {"name": name, "in": "query", "required": name in required, "schema": field_schema}
        for name, field_schema in schema["properties"].items()
    ]


def _list_header_params(operation: ApiOperation) -> list[Json]:
    description = "the same key gives the same answer, for a day"
    schema = {"type": "string", "maxLength": 255}
    header = {
        "name": "Idempotency-Key",
        "in": "header",
        "required": False,
        "description": description,
        "schema": schema,
    }
    return [header] if operation.repeat is not None else []


def _operation_id(operation: ApiOperation) -> str:
    """Return the method and the path as one identifier."""
    path = re.sub(r"[^a-z_]+", "_", _document_path(operation).removeprefix("/api/")).strip("_")
    return f"{operation.method.lower()}_{path}"
