"""How much a grant covers: counted for its owner, before it is given or after."""

from __future__ import annotations

from perdure.index.runs import descendants, run
from perdure.index.store import Connection
from perdure.types import Grant, Principal

_WHERE = {
    "tag": "run.id IN (SELECT run FROM run_tag JOIN name ON name.id = tag WHERE value = ?)",
    "project": "run.project IN (SELECT id FROM name WHERE kind = 'project' AND value = ?)",
    "agent": "run.agent IN (SELECT id FROM name WHERE kind = 'agent' AND value = ?)",
}


def n_covered(index: Connection, principal: Principal, grant: Grant) -> int:
    """How many runs of the principal's a grant covers now. Raises NotFound for a run that is not theirs."""
    if grant.scope == "run":
        return len(descendants(index, principal, run(index, principal, grant.value).run_id)) + 1
    owned = "run JOIN name AS owner ON owner.id = run.user"
    sql = f"SELECT count(*) FROM {owned} WHERE owner.value = ? AND {_WHERE[grant.scope]}"
    ((n,),) = index.rows(sql, principal.user, grant.value)
    return int(n)
