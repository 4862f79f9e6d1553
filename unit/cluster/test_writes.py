"""What each write puts on the wire, and what its answer does."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from controller.cluster.client import ApiError
from controller.cluster.resources import MODEL_DEPLOYMENTS, PODS, SERVICES, Resource
from controller.cluster.writes import Writer
from unit.cluster.objects import pod
from unit.cluster.raw_server import RawServer, Request, client_of, raw_server, response, status_body


class Wire:
    """A server that answers every write with `answer`, and a Writer to it."""

    def __init__(self, answer: Any, *, status: str = "200 OK") -> None:
        self._answer, self._status = answer, status
        self.applied: list[tuple[Resource, Any]] = []

    async def __call__(self, request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(response(self._answer, status=self._status))

    async def request(self, write: Any) -> tuple[Request, Any]:
        """Run `write(writer)`; returns the one request it made and what it returned."""
        server: RawServer
        async with raw_server(self) as server, client_of(server.url) as client:
            writer = Writer(client, applied=lambda resource, raw: self.applied.append((resource, raw)))
            result = await write(writer)
        [request] = server.requests
        return request, result


@pytest.mark.parametrize("version", [None, "17"])
async def test_a_pod_is_deleted_by_uid_and_never_with_a_grace_period(version: str | None) -> None:
    """B6 A delete carries the UID, the version when one is given, and nothing that shortens the grace."""
    terminating = pod("a", 18)
    wire = Wire(terminating)
    request, result = await wire.request(
        lambda writer: writer.delete_pod(namespace="ns", name="a", uid="uid-a", resource_version=version)
    )
    assert (request.method, request.target) == ("DELETE", "/api/v1/namespaces/ns/pods/a")
    preconditions = {"uid": "uid-a"} | ({"resourceVersion": version} if version else {})
    assert orjson.loads(request.body) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": preconditions,
    }
    assert result == terminating
    assert wire.applied == [(PODS, terminating)]


async def test_a_finished_delete_is_nothing_to_remember() -> None:
    """A delete answered with a Status applies nothing to the store."""
    wire = Wire({"kind": "Status", "status": "Success", "metadata": {}})
    await wire.request(lambda writer: writer.delete(SERVICES, namespace="ns", name="s", uid="u"))
    assert wire.applied == []


async def test_a_patch_carries_the_uid() -> None:
    """A merge patch names the UID (and the version when given) beside what it changes, and alters no argument."""
    patch = {"metadata": {"labels": {"a": None}}}
    wire = Wire(pod("a", 5))
    request, _ = await wire.request(
        lambda writer: writer.patch(PODS, patch, namespace="ns", name="a", uid="uid-a", resource_version="4")
    )
    assert (request.method, request.headers["content-type"]) == ("PATCH", "application/merge-patch+json")
    assert orjson.loads(request.body) == {
        "metadata": {"labels": {"a": None}, "uid": "uid-a", "resourceVersion": "4"}
    }
    assert patch == {"metadata": {"labels": {"a": None}}}


async def test_a_status_is_replaced_at_the_version_that_was_read() -> None:
    """A status goes by PUT to its subresource with version and UID in its metadata."""
    raw = {
        "apiVersion": "ebb.dev/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": "m", "namespace": "ns", "uid": "u", "resourceVersion": "3"},
        "status": {"phase": "Ready"},
    }
    wire = Wire({**raw, "metadata": {**raw["metadata"], "resourceVersion": "4", "managedFields": []}})  # type: ignore[dict-item]
    request, result = await wire.request(lambda writer: writer.replace_status(MODEL_DEPLOYMENTS, raw))
    assert (request.method, request.target) == (
        "PUT",
        "/apis/ebb.dev/v1alpha1/namespaces/ns/modeldeployments/m/status",
    )
    assert orjson.loads(request.body) == raw
    assert "managedFields" not in result["metadata"]
    assert wire.applied == [(MODEL_DEPLOYMENTS, result)]


@pytest.mark.parametrize("missing", ["uid", "resourceVersion"])
async def test_nothing_is_replaced_blindly(missing: str) -> None:
    """A replacement without the UID or the version that was read is a defect, and is not sent."""
    raw = pod("a", 3)
    del raw["metadata"][missing]
    with pytest.raises(ValueError, match="replaced without"):
        await Writer(None, applied=lambda resource, raw: None).replace(PODS, raw)  # type: ignore[arg-type]


async def test_a_creation_goes_to_its_collection() -> None:
    """A create is a POST to the collection of the namespace, and its answer is applied."""
    wire = Wire(pod("a", 9), status="201 Created")
    request, _ = await wire.request(lambda writer: writer.create(PODS, pod("a", 0), namespace="ns"))
    assert (request.method, request.target) == ("POST", "/api/v1/namespaces/ns/pods")
    assert wire.applied == [(PODS, pod("a", 9))]


async def test_a_refused_write_applies_nothing() -> None:
    """A refusal is told to the caller and reaches no store."""
    wire = Wire(status_body(409, "AlreadyExists", "pods a already exists"), status="409 Conflict")
    with pytest.raises(ApiError) as caught:
        await wire.request(lambda writer: writer.create(PODS, pod("a", 0), namespace="ns"))
    assert caught.value.already_exists
    assert not caught.value.conflict
    assert wire.applied == []
