"""The OpenAPI 3.1 document, made of the table of routes and of the shapes that it names."""

from __future__ import annotations

import functools
import re
from typing import Any

import msgspec

import perdure
from perdure.surfaces.http import shapes
from perdure.surfaces.http.answers import Json
from perdure.surfaces.http.calls import Row
from perdure.surfaces.http.routes import OPEN, STREAM, TABLE

_REF = "#/components/schemas/{name}"
_SAID = {
    400: "What was sent means nothing", 401: "No credential, an unknown or a revoked one", 403: "For an admin",
    404: "Nothing by that id that the caller may see", 408: "The body did not come in time",
    409: "It contradicts what is there", 413: "Too large: send it in pieces", 429: "Too often: see Retry-After",
    503: "Not now: see Retry-After",
}  # fmt: skip
_FAILED: Json = {
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
def document() -> Json:
    """The whole document."""
    rows = (*OPEN, STREAM, *TABLE)
    kinds = [kind for row in rows for kind in (row.body, row.gives) if kind is not None]
    _, schemas = msgspec.json.schema_components(kinds, ref_template=_REF)
    paths: Json = {}
    for row in rows:
        paths.setdefault(_path(row), {})[row.method.lower()] = _operation(row)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Perdure", "version": perdure.__version__, "description": perdure.__doc__ or ""},
        "security": [{"machine": []}],
        "paths": paths,
        "components": {
            "schemas": {**schemas, "Failed": _FAILED},
            "securitySchemes": {"machine": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(row: Row) -> Json:
    statuses = sorted({*row.more, *_statuses(row)})
    made: Json = {
        "operationId": f"{row.method.lower()}_{re.sub(r'[^a-z_]+', '_', _path(row).removeprefix('/api/')).strip('_')}",
        "summary": row.says,
        "parameters": [*_in_path(row), *_in_query(row), *_in_headers(row)],
        "responses": {str(row.status): _given(row), **{str(status): _refusal(status) for status in statuses}},
    }
    if row.body is not None:
        made["requestBody"] = {"required": True, "content": _taken(row)}
    if row in OPEN:
        made["security"] = []
    return made


def _path(row: Row) -> str:
    """Its path as the document writes it, without what a name in it may hold."""
    return row.path.replace(":path}", "}")


def _statuses(row: Row) -> set[int]:
    if row in OPEN:
        return set()
    found = {400, 401, 429, 503}
    found |= {403} if row.is_admin else set()
    found |= {408, 413} if row.body is not None else set()
    return found | ({409} if row.again is not None else set())


def _taken(row: Row) -> Json:
    json = {"application/json": {"schema": _ref(row.body)}}
    lines = {"schema": {"type": "string", "contentEncoding": "binary", "description": "complete lines of JSON"}}
    return {"application/x-ndjson": lines, **json} if row.is_raw else json


def _given(row: Row) -> Json:
    schema: Json = _ref(row.gives) if row.gives is not None else {"type": "object"}
    if row.kind != "application/json":
        schema = {"type": "string"}
    return {"description": row.says, "content": {row.kind: {"schema": schema}}}


def _refusal(status: int) -> Json:
    headers: Json = {"Retry-After": {"schema": {"type": "integer"}}} if status in (429, 503) else {}
    content = {"application/json": {"schema": {"$ref": _REF.format(name="Failed")}}}
    return {"description": _SAID[status], "content": content, **({"headers": headers} if headers else {})}


def _ref(shape: Any) -> Json:
    (schema,), _ = msgspec.json.schema_components([shape], ref_template=_REF)
    return dict(schema)


def _in_path(row: Row) -> list[Json]:
    names = re.findall(r"{(\w+)}", _path(row))
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _in_query(row: Row) -> list[Json]:
    """Each field of the query's shape. Of a raw body they are needed unless its JSON holds them."""
    if row.query is shapes.Unread:
        return []
    schema = msgspec.json.schema(row.query)["$defs"][row.query.__name__]
    needed = set() if row.is_raw else set(schema.get("required", ()))
    return [
        {"name": name, "in": "query", "required": name in needed, "schema": said}
        for name, said in schema["properties"].items()
    ]


def _in_headers(row: Row) -> list[Json]:
    said = "the same key gives the same answer, for a day"
    schema = {"type": "string", "maxLength": 255}
    key = {"name": "Idempotency-Key", "in": "header", "required": False, "description": said, "schema": schema}
    return [key] if row.again is not None else []
