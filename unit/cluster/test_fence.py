"""Nothing that changes the cluster or a router is sent by a process that may not act any more."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from controller.cluster.client import NoAnswerError
from controller.cluster.leader import LeaseLostError
from controller.cluster.resources import EVENTS, MODEL_DEPLOYMENTS, PODS
from controller.cluster.writes import Writer
from unit.cluster.objects import pod
from unit.cluster.raw_server import Request, client_of, raw_server, response

LABEL: dict[str, Any] = {"metadata": {"labels": {"a": None}}}


def shut() -> float:
    raise LeaseLostError("the Lease ebb-system/ebb-controller was last renewed 12.0 s ago")


async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(response(pod("a", 18)))


async def silence(request: Request, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(30)


@pytest.mark.parametrize(
    "write",
    [
        lambda writer: writer.delete_pod(namespace="ns", name="a", uid="u"),
        lambda writer: writer.patch(PODS, LABEL, namespace="ns", name="a", uid="u"),
        lambda writer: writer.replace_status(
            MODEL_DEPLOYMENTS,
            {"metadata": {"namespace": "ns", "name": "m", "uid": "u", "resourceVersion": "1"}},
        ),
        lambda writer: writer.create(EVENTS, {"metadata": {"name": "e"}}, namespace="ns"),
    ],
    ids=["delete", "label", "status", "create"],
)
async def test_a_shut_fence_stops_every_write(write: Any) -> None:
    """S7 A process whose lease is too old sends no delete, no label, no status and nothing else; the error says why."""
    async with raw_server(answer) as server, client_of(server.url) as client:
        writer = Writer(client, applied=lambda resource, raw: None, fence=shut)
        with pytest.raises(LeaseLostError, match=r"last renewed 12\.0 s ago"):
            await write(writer)
    assert server.requests == []


async def test_no_write_outlasts_the_lease() -> None:
    """S7 A write is waited for only as long as its sender may act: then its connection is closed under it."""
    async with raw_server(silence) as server, client_of(server.url) as client:
        writer = Writer(client, applied=lambda resource, raw: None, fence=lambda: 0.2)
        with pytest.raises(NoAnswerError, match=r"within 0\.2 s"):
            await writer.delete_pod(namespace="ns", name="a", uid="u")
    assert len(server.requests) == 1
