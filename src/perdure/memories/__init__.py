"""What a memory is about, by rules: statements found, claims read, paths checked. Pure; no model, no clock, no disk.

The same text always gives the same answer. Every doubt goes against finding something: a memory that is missing is
asked for again, one that is wrong is believed.
"""

from perdure.memories.claims import claim, path_for, same_subject, says_same
from perdure.memories.paths import checked
from perdure.memories.statements import Kind, Statement, stated
from perdure.memories.values import Claim

__all__ = ["Claim", "Kind", "Statement", "checked", "claim", "path_for", "same_subject", "says_same", "stated"]
