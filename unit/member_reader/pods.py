"""The member that is read in these tests, and its Pod with some of it replaced."""

from __future__ import annotations

import copy
from typing import Any

from controller.member_reader.preflight import MemberTarget
from unit import builders

_POD = builders.pod(ordinal=1)
TARGET = MemberTarget(
    namespace=_POD.namespace,
    name=_POD.name,
    uid=_POD.uid,
    owner_uid=_POD.owner_uid,
    container_id=_POD.identity.container_id,
    restart_count=0,
    engine="vLLM",
)


def pod(
    *,
    command: list[str] | None = None,
    annotations: dict[str, str | None] | None = None,
    metadata: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    container: dict[str, Any] | None = None,
    node: str = "node-1",
) -> dict[str, Any]:
    """As the API server sends it. An annotation of None is taken away; `container` is of the engine's status."""
    made: dict[str, Any] = copy.deepcopy(dict(_POD.raw))
    made["metadata"] |= metadata or {}
    for key, value in (annotations or {}).items():
        made["metadata"]["annotations"].pop(key, None)
        if value is not None:
            made["metadata"]["annotations"][key] = value
    made["status"]["containerStatuses"][0] |= container or {}
    made["status"] |= status or {}
    made["spec"]["nodeName"] = node
    if command is not None:
        made["spec"]["containers"][0]["command"] = command
    return made
