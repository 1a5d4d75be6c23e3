"""The table of operations: the application and the OpenAPI document are both made of it, so that they cannot differ."""

from __future__ import annotations

from perdure.surfaces.http import captures, care, finding, people, recalling, runs, shapes
from perdure.surfaces.http.calls import Row

OPEN: tuple[Row, ...] = (  # for everybody
    Row("GET", "/api/alive", care.alive, "Whether the server answers", gives=shapes.Alive),
    Row("GET", "/api/openapi.json", care.alive, "This document"),
)
TABLE: tuple[Row, ...] = (
    Row("GET", "/api/me", people.me, "Who this credential stands for", gives=shapes.Me),
    Row(
        "POST", "/api/runs", captures.capture, "Keep bytes of a session", query=shapes.Captured,
        body=shapes.CapturedJson, gives=shapes.Stored, status=202, desk="capture", is_raw=True, is_own=False,
        again=captures.again, more=(409,),
    ),
    Row("POST", "/api/runs/search", finding.search, "Search what was said", body=shapes.Search),
    Row("GET", "/api/runs/forest", runs.forest, "The newest runs as trees", query=shapes.Forest),
    Row("GET", "/api/runs/{run_id}", runs.run, "One run", more=(404,)),
    Row("GET", "/api/runs/{run_id}/jsonl", runs.jsonl, "The bytes of a run", kind=runs.JSONL, more=(404,)),
    Row(
        "GET", "/api/runs/{run_id}/descendants", runs.descendants, "The runs below a run", query=shapes.Paging,
        more=(404,),
    ),
    Row("POST", "/api/recall", recalling.recall, "What matters for a message", body=shapes.Recall, late=recalling.LATE),
    Row(
        "POST", "/api/hook", recalling.hook, "What a client is told about an event", body=shapes.Hook,
        gives=shapes.Said, late=recalling.SAID_NOTHING,
    ),
    Row("POST", "/api/context", recalling.context, "What any model is to read for a message", body=shapes.ForContext),
    Row("GET", "/api/health", care.health, "Whether the data path works", desk="slow", is_own=False),
)  # fmt: skip
