"""What may change in a stored object, and what its status keeps."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from apis.v1alpha1 import labels
from apis.v1alpha1.conditions import ConditionType, Reason
from apis.v1alpha1.model_deployment import ModelDeploymentSpec
from controller.clock import parse_time
from controller.cluster.client import ApiError, Client
from controller.cluster.resources import MODEL_DEPLOYMENTS
from e2e.cluster import ControlPlane
from unit.api_server.objects import NAMESPACE, role, routed

pytestmark = pytest.mark.control_plane

MERGE = "application/merge-patch+json"
NAME = "stored"


@pytest.fixture
async def stored(client: Client) -> AsyncIterator[dict[str, Any]]:
    """A routed object of two roles that is there for one test."""
    wanted = routed(role(name="a"), role(name="b"))
    wanted["metadata"]["name"] = NAME
    answer = await client.request("POST", MODEL_DEPLOYMENTS.path(namespace=NAMESPACE), body=wanted)
    yield answer.body
    await client.request("DELETE", MODEL_DEPLOYMENTS.path(namespace=NAMESPACE, name=NAME))


async def patch(client: Client, body: dict[str, Any], subresource: str = "") -> dict[str, Any]:
    path = MODEL_DEPLOYMENTS.path(namespace=NAMESPACE, name=NAME, subresource=subresource)
    answer = await client.request("PATCH", path, body=body, content_type=MERGE)
    return dict(answer.body)


async def test_defaults_are_those_of_the_models(client: Client, stored: dict[str, Any]) -> None:
    """What the API server fills in is what the models would: both have one source."""
    given = ModelDeploymentSpec.model_validate(routed(role(name="a"), role(name="b"))["spec"])
    written = given.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert stored["spec"] == written


@pytest.mark.parametrize(
    ("edit", "field", "words"),
    [
        ({"model": {"name": "other"}}, "spec.model.name", "the served name is immutable"),
        ({"engine": {"name": "SGLang"}}, "spec.engine.name", "the engine is immutable"),
    ],
)
async def test_immutable(
    client: Client, stored: dict[str, Any], edit: dict[str, Any], field: str, words: str
) -> None:
    """What every running replica was built on cannot be edited."""
    with pytest.raises(ApiError) as refusal:
        await patch(client, {"spec": edit})
    assert refusal.value.status == 422
    assert words in str(refusal.value)
    assert field in str(refusal.value)


@pytest.mark.parametrize(
    "edit",
    [
        {"model": {"path": "/elsewhere"}},
        {"router": None},
        {"router": {"image": "router:2", "replicas": 3}},
        {"roles": [role(name="a", replicas=4)]},
        {"roles": [role(name="a"), role(name="renamed"), role(name="added")]},
        {"retirement": {"drainSeconds": 60}},
    ],
)
async def test_mutable(client: Client, stored: dict[str, Any], edit: dict[str, Any]) -> None:
    """Scaling, dropping, renaming and adding roles, and taking the router off, are edits that are taken."""
    edited = await patch(client, {"spec": edit})
    assert edited["metadata"]["generation"] == stored["metadata"]["generation"] + 1


async def test_the_router_comes_and_goes(client: Client, stored: dict[str, Any]) -> None:
    """A router is removed by an edit and added by another."""
    router = stored["spec"]["router"]
    assert "router" not in (await patch(client, {"spec": {"router": None}}))["spec"]
    assert (await patch(client, {"spec": {"router": router}}))["spec"]["router"] == router


STATUS: dict[str, Any] = {
    "phase": "Ready",
    "observedGeneration": 1,
    "roleSummary": "1R2S",
    "endpoint": "http://stored-router.default.svc:8081",
    "retiring": "a/1 Draining",
    "roles": [{"name": "a", "kind": "Server", "desired": 0, "ready": 0, "updated": 0, "later": {"x": 1}}],
    "router": {"desired": 1, "ready": 0},
    "retirement": {
        "roleName": "a",
        "replicaOrdinal": 0,
        "cause": "ReplicasReduced",
        "observedGeneration": 2,
        "targetMembers": [
            {
                "uid": "u1",
                "name": "stored-a-r0-m0",
                "containerID": "containerd://1",
                "restartCount": 0,
                "later": 1,
            }
        ],
        "targetWorkloadUID": "",
        "policy": {
            "withoutRouter": "Hold",
            "withdrawSeconds": 30,
            "drainSeconds": 240,
            "settleSeconds": 30,
            "totalSeconds": 300,
            "disaggregated": "Refuse",
        },
        "state": "Draining",
        "reason": "2 requests are in flight",
        "startedAt": "2026-12-01T12:00:00.123456Z",
        "deadline": "2026-12-01T12:05:00.123456Z",
        "phaseStartedAt": "2026-12-01T12:00:06.000001Z",
        "withdrawnSince": "2026-12-01T12:00:01.999999Z",
        "evidenceAt": "2026-12-01T12:00:10.500000Z",
        "inFlight": 0,
        "lastReadAt": "2026-12-01T12:00:11.000000Z",
        "lastConsumedToken": "token-a",
        "byANewerVersion": ["kept"],
    },
    "departing": [
        {
            "roleName": "a",
            "replicaOrdinal": 1,
            "uids": ["u2"],
            "workloadUID": "",
            "reason": "its node does not answer",
            "since": "2026-12-01T11:00:00.000001Z",
        }
    ],
    "conditions": [
        {
            "type": str(ConditionType.REMOVALS_SETTLED),
            "status": "False",
            "observedGeneration": 2,
            "lastTransitionTime": "2026-12-01T12:00:00.654321Z",
            "reason": str(Reason.RETIREMENT_RUNNING),
            "message": "a/0 is being retired",
        }
    ],
    "alsoByANewerVersion": {"nested": {"kept": True}},
}


async def test_the_status_is_kept_to_the_letter(client: Client, stored: dict[str, Any]) -> None:
    """Every field of the status, unknown ones and microseconds too, reads as it was written; zeros stay."""
    written = await patch(client, {"status": STATUS}, "status")
    assert written["status"] == STATUS
    path = MODEL_DEPLOYMENTS.path(namespace=NAMESPACE, name=NAME)
    read = (await client.request("GET", path)).body["status"]
    assert read == STATUS
    assert parse_time(read["retirement"]["startedAt"]).microsecond == 123456


async def test_the_status_is_written_apart(client: Client, stored: dict[str, Any]) -> None:
    """A write of the status changes no spec, a write of the spec no status, and only the spec has a generation."""
    await patch(client, {"status": STATUS}, "status")
    edited = await patch(
        client, {"spec": {"retirement": {"drainSeconds": 60}}, "status": {"phase": "Deleting"}}
    )
    assert edited["status"] == STATUS
    after = await patch(client, {"spec": {"entryRole": "b"}, "status": {"phase": "Degraded"}}, "status")
    assert after["spec"] == edited["spec"]
    assert after["metadata"]["generation"] == edited["metadata"]["generation"]


@pytest.mark.parametrize(
    ("status", "field"),
    [
        ({"retirement": STATUS["retirement"] | {"state": "Resting"}}, "status.retirement.state"),
        ({"retirement": STATUS["retirement"] | {"startedAt": "yesterday"}}, "status.retirement.startedAt"),
        ({"conditions": [STATUS["conditions"][0] | {"status": "Maybe"}]}, "status.conditions[0].status"),
        ({"conditions": STATUS["conditions"] * 2}, "status.conditions[1]"),
    ],
)
async def test_a_status_that_nobody_could_read_is_refused(
    client: Client, stored: dict[str, Any], status: dict[str, Any], field: str
) -> None:
    """A state, a time or a condition that does not exist is not stored."""
    with pytest.raises(ApiError) as refusal:
        await patch(client, {"status": status}, "status")
    assert field in str(refusal.value)


async def test_an_invalid_edit_of_one_field_leaves_the_object(client: Client, stored: dict[str, Any]) -> None:
    """A refused edit changes nothing: the object reads as before, version and all."""
    with pytest.raises(ApiError):
        await patch(client, {"spec": {"entryRole": "none"}})
    path = MODEL_DEPLOYMENTS.path(namespace=NAMESPACE, name=NAME)
    assert (await client.request("GET", path)).body == stored


def unexplained(schema: dict[str, Any], path: str) -> list[str]:
    """Paths of fields that the published OpenAPI says nothing about."""
    missing = []
    for name, field in schema.get("properties", {}).items():
        where = f"{path}.{name}"
        missing += [where] if not field.get("description") else []
        missing += unexplained(field, where)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            missing += unexplained(schema[key], f"{path}[]")
    return missing


def test_explain(plane: ControlPlane) -> None:
    """`kubectl explain` has a sentence for every field, and says what a user wants to know about one."""
    published = json.loads(plane.kubectl("get", "--raw", f"/openapi/v3/apis/{labels.API_VERSION}"))
    schema = published["components"]["schemas"][f"dev.ebb.{labels.VERSION}.{labels.KIND}"]
    assert unexplained(schema, "") == []
    plane.kubectl("api-resources", "--api-group", labels.GROUP)  # kubectl's cache may be older than the CRD
    role = plane.kubectl("explain", "md.spec.roles")
    for words in ("size\t<integer>", "Pods per replica, which share one fate", "-required-"):
        assert words in role
    kind = plane.kubectl("explain", "modeldeployments.spec.roles.kind")
    assert kind.split("ENUM:")[1].split()[:3] == ["Server", "Prefill", "Decode"]


async def test_columns(client: Client, stored: dict[str, Any], plane: ControlPlane) -> None:
    """`kubectl get md` shows the engine, the replicas, how far a retirement is, and when wide the reason."""
    await patch(client, {"status": STATUS}, "status")
    short = plane.kubectl("get", "md", NAME, "--namespace", NAMESPACE)
    assert short.split("\n")[0].split() == ["NAME", "ENGINE", "ROLES", "PHASE", "RETIRING", "ENDPOINT", "AGE"]
    for shown in ("vLLM", "1R2S", "Ready", "a/1 Draining", STATUS["endpoint"]):
        assert shown in short
    assert STATUS["retirement"]["reason"] not in short
    wide = plane.kubectl("get", "ebb", "--namespace", NAMESPACE, "--output=wide")
    assert STATUS["retirement"]["reason"] in wide
