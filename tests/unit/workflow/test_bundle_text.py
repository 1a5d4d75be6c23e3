"""A bundle as text."""

from perdure.workflow.bundle_text import render_bundle
from perdure.workflow.memory import MemoryBundle


def test_every_part_has_its_place_and_secrets_are_masked():
    turn = {"turn_id": "t1", "timestamp": "2026-01-15T09:00:00.000000+00:00", "thought": "Look.", "action": "get"}
    bundle = MemoryBundle(
        ltm_summary="- Decision: PostgreSQL",
        recent_turns=[{**turn, "result": "", "tokens": 3}],
        checkpoint='{"url": "postgres://ada:tr0ub4dor@host/x"}',
        scratchpad="",
        athena_context={"stm_events": ["met Ann"]},
    )
    assert render_bundle(bundle) == (
        "## Summary of the workflow so far\n\n- Decision: PostgreSQL\n\n"
        "## Newest turns of the workflow\n\n### t1 (2026-01-15T09:00:00Z, 3 tokens)\n\n"
        "- **Thought:** Look.\n- **Action:** get\n\n"
        '## Checkpoint of this step\n\n{"url": "postgres://ada:[secret:password]@host/x"}\n\n'
        "## Notes of this step\n\n(nothing)\n\n"
        '## From all workflows of this agent\n\n{\n "stm_events": [\n  "met Ann"\n ]\n}\n'
    )
