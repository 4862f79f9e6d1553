"""The environment of the engine's container."""

from __future__ import annotations

from typing import Any

from apis.v1alpha1.base import ApiModel
from apis.v1alpha1.role import Role


def engine_env(role: Role) -> dict[str, Any]:
    """`env` and `envFrom` of `main`, as the user gave them."""
    fragment: dict[str, Any] = {}
    if role.env:
        fragment["env"] = as_given(role.env)
    if role.env_from:
        fragment["envFrom"] = as_given(role.env_from)
    return fragment


def as_given(models: tuple[ApiModel, ...]) -> list[dict[str, Any]]:
    """In the API's spelling, without what was not set."""
    return [model.model_dump(mode="json", by_alias=True, exclude_none=True) for model in models]
