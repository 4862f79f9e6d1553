"""Uncached reads: what a destructive decision rests on. Absence is proven here and nowhere else."""

from __future__ import annotations

from typing import Any

from controller.cluster.client import ApiError, Client
from controller.snapshot import PodView

PAGE = 500


async def list_all(
    client: Client, path: str, *, selector: str, timeout: float = 10.0
) -> list[dict[str, Any]]:
    """Every object behind a label selector, all pages. Raises ApiError or NoAnswerError; never gives a part."""
    items: list[dict[str, Any]] = []
    query = {"labelSelector": selector, "limit": str(PAGE)}
    while True:
        answer = await client.request("GET", path, query=query, timeout=timeout)
        items += answer.body["items"]
        token = (answer.body.get("metadata") or {}).get("continue")
        if not token:
            return items
        query["continue"] = token


async def list_pods(
    client: Client, *, namespace: str, selector: str, timeout: float = 10.0
) -> tuple[PodView, ...]:
    path = f"/api/v1/namespaces/{namespace}/pods"
    return tuple(PodView(raw) for raw in await list_all(client, path, selector=selector, timeout=timeout))


async def get_pod(client: Client, *, namespace: str, name: str, timeout: float = 10.0) -> PodView | None:
    """The live Pod of that name, None when the API server says that there is none."""
    found = await get(client, f"/api/v1/namespaces/{namespace}/pods/{name}", timeout=timeout)
    return None if found is None else PodView(found)


async def get(client: Client, path: str, *, timeout: float = 10.0) -> dict[str, Any] | None:
    """The live object at a path, None when Kubernetes says that there is none."""
    try:
        body: dict[str, Any] = (await client.request("GET", path, timeout=timeout)).body
    except ApiError as error:
        if error.not_found:
            return None
        raise
    return body
