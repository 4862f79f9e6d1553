"""Raw Pods as small as a store needs them."""

from __future__ import annotations

from typing import Any


def pod(
    name: str, version: int, *, uid: str | None = None, owner: str | None = None, **more: Any
) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": "ns",
        "uid": uid or f"uid-{name}",
        "resourceVersion": str(version),
    }
    if owner is not None:
        metadata["ownerReferences"] = [{"uid": owner, "controller": True}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, **more}
