"""The model that a session talks with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.errors import ConfigFault, ModelMissing
from perdure.models.chat import Chat
from perdure.models.roles import ROLES

if TYPE_CHECKING:
    from perdure.home import Home

JOB = "chat"  # the job under which the calls are metered


def find_chat(home: Home, model: str = "", *, job: str = JOB, effort: str = "") -> Chat:
    """Return a model to talk with: of the role resident, of another role, or another one of the resident's provider.

    model: "", a role, or a name at the provider. effort: the provider's word, instead of the one of the settings.
    Raises ModelMissing, ConfigFault.
    """
    role, name = (model, "") if model in ROLES else ("resident", model)
    chat = home.chat(role, job=job, model=name, effort=effort)
    if chat is None:
        raise ModelMissing if role == "resident" else ConfigFault(f"models.roles.{role} has no provider")
    return chat
