"""The table of operations: the application and the OpenAPI document are both made of it, so that they cannot differ."""

from __future__ import annotations

from perdure.surfaces.http import believed, captures, care, finding, floors, gives, people, recalling, runs, shapes
from perdure.surfaces.http.calls import Row

OPEN: tuple[Row, ...] = (  # for everybody
    Row("GET", "/api/alive", care.alive, "Whether the server answers", gives=shapes.Alive),
    Row("GET", "/api/openapi.json", care.alive, "This document"),
)
STREAM = Row(
    "GET",
    "/api/events",
    care.alive,
    "The caller's own events, as they happen",
    kind="text/event-stream",
)
TABLE: tuple[Row, ...] = (
    Row("GET", "/api/me", people.me, "Who this credential stands for", gives=shapes.Me),
    Row(
        "POST", "/api/runs", captures.capture, "Keep bytes of a session", query=shapes.Captured,
        body=shapes.CapturedJson, gives=shapes.Stored, status=202, desk="capture", is_raw=True, is_own=False,
        again=captures.again, more=(409,),
    ),
    Row("POST", "/api/runs/search", finding.search, "Search what was said", body=shapes.Search, gives=shapes.FoundSaid),
    Row(
        "GET", "/api/runs", runs.conversation, "The runs of a conversation", query=shapes.Conversation,
        gives=gives.Runs, more=(404,),
    ),
    Row(
        "GET", "/api/runs/forest", runs.forest, "The newest runs as trees", query=shapes.Forest,
        gives=gives.Forest, more=(404,),
    ),
    Row("GET", "/api/runs/{run_id}", runs.run, "One run", gives=gives.OneRun, more=(404,)),
    Row(
        "DELETE", "/api/runs/{run_id}", runs.forget, "Forget the turns of a run", query=shapes.Forgetting, desk="write",
        more=(404,),
    ),
    Row("GET", "/api/runs/{run_id}/jsonl", runs.jsonl, "The bytes of a run", kind=runs.JSONL, more=(404,)),
    Row(
        "GET", "/api/runs/{run_id}/descendants", runs.descendants, "The runs below a run", query=shapes.Paging,
        gives=gives.Runs,
        more=(404,),
    ),
    Row("GET", "/api/resolve/{identifier}", runs.resolve, "What an id means", more=(404,)),
    Row(
        "POST", "/api/recall", recalling.recall, "What matters for a message", body=shapes.Recall,
        gives=shapes.RecalledSaid, late=recalling.LATE,
    ),
    Row(
        "POST", "/api/hook", recalling.hook, "What a client is told about an event", body=shapes.Hook,
        gives=shapes.Said, late=recalling.SAID_NOTHING,
    ),
    Row(
        "POST", "/api/context", recalling.context, "What any model is to read for a message", body=shapes.ForContext,
        gives=gives.ContextSaid,
    ),
    Row("GET", "/api/memories", believed.memories, "What is believed", query=shapes.Listing, gives=gives.Memories),
    Row(
        "POST", "/api/memories", believed.remember, "Keep a statement", body=shapes.Remember,
        gives=gives.OneMemory, status=201,
        desk="write", again=believed.again,
    ),
    Row("POST", "/api/memories/search", believed.search, "Search what is believed", body=shapes.Find),
    Row(
        "GET", "/api/memories/{memory_id}", believed.memory, "One memory and what is behind it",
        gives=gives.OneMemory, more=(404,),
    ),
    Row(
        "PATCH", "/api/memories/{memory_id}", believed.change, "Change a memory", body=shapes.Reword,
        gives=gives.OneMemory, desk="write",
        more=(404,),
    ),
    Row("DELETE", "/api/memories/{memory_id}", believed.forget, "Forget a memory", desk="write", more=(404,)),
    Row("GET", "/api/cards", floors.cards, "The cards", query=shapes.Paging, gives=gives.Cards),
    Row(
        "POST", "/api/cards", floors.add_card, "Add a card", body=shapes.CardText,
        gives=gives.OneCard, status=201, desk="write",
        again=floors.again,
    ),
    Row("DELETE", "/api/cards/{card_id}", floors.remove_card, "Take a card away", desk="write", more=(404,)),
    Row(
        "GET", "/api/floor", floors.floor, "What is at hand in every session", query=shapes.FloorOf,
        gives=gives.FloorSaid,
    ),
    Row("GET", "/api/floor/{page:path}", floors.page, "A page of the floor", gives=gives.PageSaid, more=(404,)),
    Row(
        "PUT", "/api/floor/{page:path}", floors.write, "Write a page of the floor", body=shapes.PageText,
        gives=gives.PageSaid, desk="write",
        more=(404,),
    ),
    Row(
        "GET", "/api/machines", people.machines, "The machines of a user", query=shapes.Whose,
        gives=shapes.MachinesSaid, more=(403,),
    ),
    Row(
        "POST", "/api/machines", people.register, "Register a machine", body=shapes.Register,
        gives=shapes.MachineMade, status=201, desk="write",
        again=people.again_machine, more=(403,),
    ),
    Row(
        "DELETE", "/api/machines/{machine_id}", people.revoke, "Revoke a machine",
        gives=shapes.MachineSaid, desk="write", more=(404,),
    ),
    Row("GET", "/api/grants", people.grants, "What is shared", query=shapes.Over, gives=shapes.GrantsSaid),
    Row(
        "POST", "/api/grants", people.share, "Share something", body=shapes.Share,
        gives=shapes.GrantSaid, status=201, desk="write",
        again=people.again_grant, more=(404,),
    ),
    Row(
        "DELETE", "/api/grants/{grant_id}", people.unshare, "Share or read it no more",
        gives=shapes.GrantSaid, desk="write", more=(404,),
    ),
    Row("GET", "/api/jobs", care.jobs, "What runs when", gives=shapes.JobsSaid, is_admin=True, is_own=False),
    Row(
        "POST", "/api/jobs/{name}", care.begin, "Run a job now", status=202, is_admin=True, is_own=False, more=(404,),
    ),
    Row(
        "GET", "/api/health", care.health, "Whether the data path works",
        gives=shapes.Health, desk="slow", is_own=False,
    ),
)  # fmt: skip
