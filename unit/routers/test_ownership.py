"""Whose router a Pod is: by owner references and UIDs, never by labels."""

from __future__ import annotations

from typing import Any

import pytest

from controller.cluster.client import ApiError, Response
from controller.routers.ownership import RouterOwnership
from controller.snapshot import PodView
from unit.builders import DEPLOYMENT_UID, router_pod

SET = "/apis/apps/v1/namespaces/default/replicasets/chat-router-1"
DEPLOYMENT = "/apis/apps/v1/namespaces/default/deployments/chat-router"


def reference(kind: str, name: str, uid: str) -> dict[str, Any]:
    return {"kind": kind, "name": name, "uid": uid, "controller": True}


def owned(by: dict[str, Any] | None) -> PodView:
    found = router_pod()
    found.raw["metadata"]["ownerReferences"] = [by] if by else []
    return found


class Server:
    """Answers reads of single objects, and counts them."""

    def __init__(self, objects: dict[str, dict[str, Any]]) -> None:
        self.objects = objects
        self.reads = 0

    async def request(self, method: str, path: str, **_: Any) -> Response:
        assert method == "GET"
        self.reads += 1
        if path not in self.objects:
            raise ApiError(status=404, reason="NotFound", message=f"{path} not found")
        return Response(200, self.objects[path])


def chain(*, deployment_owner: str = DEPLOYMENT_UID, set_uid: str = "set") -> Server:
    return Server(
        {
            SET: {
                "metadata": {
                    "uid": set_uid,
                    "ownerReferences": [reference("Deployment", "chat-router", "deployment")],
                }
            },
            DEPLOYMENT: {
                "metadata": {
                    "uid": "deployment",
                    "ownerReferences": [reference("ModelDeployment", "chat", deployment_owner)],
                }
            },
        }
    )


OF_SET = reference("ReplicaSet", "chat-router-1", "set")


async def test_whole_chain_is_ours_and_read_once() -> None:
    """A Pod of a ReplicaSet of the deployment's own Deployment is its router; the links are read once."""
    server = chain()
    ownership = RouterOwnership(server)  # type: ignore[arg-type]
    for _ in range(3):
        found = await ownership.sort([owned(OF_SET)], deployment_uid=DEPLOYMENT_UID)
        assert len(found.ours) == 1 and found.unplaced == ()
    assert server.reads == 2


@pytest.mark.parametrize(
    "by",
    [
        None,
        reference("StatefulSet", "x", "set"),
        reference("ModelDeployment", "chat", DEPLOYMENT_UID),
    ],
)
async def test_labels_alone_are_nothing(by: dict[str, Any] | None) -> None:
    """F11 A Pod with a router's labels that nothing, or something else, controls is never a router of ours."""
    found = await RouterOwnership(chain()).sort([owned(by)], deployment_uid=DEPLOYMENT_UID)  # type: ignore[arg-type]
    assert found.ours == () and found.unplaced == ()


async def test_router_of_another_deployment() -> None:
    """F11 The chain of another ModelDeployment, also an earlier one of the same name, is not ours."""
    server = chain(deployment_owner="an earlier one")
    found = await RouterOwnership(server).sort([owned(OF_SET)], deployment_uid=DEPLOYMENT_UID)  # type: ignore[arg-type]
    assert found.ours == () and found.unplaced == ()


@pytest.mark.parametrize("server", [Server({}), chain(set_uid="made again under the same name")])
async def test_chain_that_is_gone(server: Server) -> None:
    """A Pod whose ReplicaSet is gone is asked, for its answer may hold a replica, but is no router to rely on."""
    found = await RouterOwnership(server).sort([owned(OF_SET)], deployment_uid=DEPLOYMENT_UID)  # type: ignore[arg-type]
    assert found.ours == () and len(found.unplaced) == 1
