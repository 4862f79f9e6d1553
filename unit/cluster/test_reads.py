"""Uncached reads prove presence and absence, or say that they cannot."""

from __future__ import annotations

import asyncio

import pytest

from controller.cluster.client import ApiError
from controller.cluster.reads import get_pod, list_pods
from unit.cluster.objects import pod
from unit.cluster.raw_server import Request, client_of, raw_server, response, status_body


async def test_a_list_is_whole() -> None:
    """All pages of one selector are read, and no version is named: the newest state is what counts."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        last = ("continue", "more") in request.query
        metadata = {} if last else {"continue": "more"}
        writer.write(response({"metadata": metadata, "items": [pod("b" if last else "a", 1)]}))

    async with raw_server(answer) as server, client_of(server.url) as client:
        found = await list_pods(client, namespace="ns", selector="app=ebb")
    assert [view.name for view in found] == ["a", "b"]
    for request in server.requests:
        assert ("labelSelector", "app=ebb") in request.query
        assert not any(name == "resourceVersion" for name, _ in request.query)


async def test_a_list_that_breaks_off_is_no_list() -> None:
    """A page that is refused makes the whole list fail."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        if ("continue", "more") in request.query:
            writer.write(response(status_body(410, "Expired", "too old"), status="410 Gone"))
        else:
            writer.write(response({"metadata": {"continue": "more"}, "items": [pod("a", 1)]}))

    async with raw_server(answer) as server, client_of(server.url) as client:
        with pytest.raises(ApiError, match="too old"):
            await list_pods(client, namespace="ns", selector="app=ebb")


@pytest.mark.parametrize("proven", [True, False])
async def test_an_absence_is_proven_by_kubernetes_alone(proven: bool) -> None:
    """None means that Kubernetes said NotFound; any other 404 is an error."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        body = status_body(404, "NotFound", "pods a not found") if proven else b"404 page not found"
        writer.write(response(body, status="404 Not Found"))

    async with raw_server(answer) as server, client_of(server.url) as client:
        if proven:
            assert await get_pod(client, namespace="ns", name="a") is None
        else:
            with pytest.raises(ApiError, match="404 page not found"):
                await get_pod(client, namespace="ns", name="a")
