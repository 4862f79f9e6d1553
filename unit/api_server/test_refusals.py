"""A real API server refuses what is wrong, naming the field and the reason, and takes what is right."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from controller.cluster.client import ApiError, Client
from controller.cluster.resources import MODEL_DEPLOYMENTS
from unit.api_server.objects import NAMESPACE, deployment, role, routed, with_role

pytestmark = pytest.mark.control_plane

SAMPLES: Final = Path(__file__).parents[2] / "manifests" / "samples"
DRY_RUN: Final = {"dryRun": "All", "fieldValidation": "Strict"}
OWNED_KEYS: Final = "are set by Ebb"

INVALID: Final[dict[str, tuple[dict[str, Any], str, str]]] = {
    "no model": (deployment(model=None), "spec.model", "Required"),
    "empty model name": (deployment(model={"name": ""}), "spec.model.name", "at least 1 char"),
    "model name that is a flag": (deployment(model={"name": "--x"}), "spec.model.name", "should match"),
    "engine not offered yet": (
        deployment(engine={"name": "Custom"}),
        "spec.engine.name",
        'supported values: "vLLM"',
    ),
    "no role": (deployment(roles=[]), "spec.roles", "at least 1 items"),
    "11 roles": (
        deployment(roles=[role(name=f"r{number}") for number in range(11)], entryRole="r0"),
        "spec.roles",
        "at most 10 items",
    ),
    "two roles of one name": (
        deployment(roles=[role(), role()], entryRole="server"),
        "spec.roles[1]",
        "Duplicate",
    ),
    "two roles, no entry role": (
        deployment(roles=[role(name="a"), role(name="b")]),
        "spec.entryRole",
        "entryRole is required with several Server roles",
    ),
    "entry role that is not there": (
        deployment(entryRole="other"),
        "spec.entryRole",
        "entryRole must name one of roles",
    ),
    "role called router": (with_role(name="router"), "spec.roles[0].name", "reserved for the router"),
    "role name in capitals": (with_role(name="Server"), "spec.roles[0].name", "should match"),
    "kind not offered yet": (with_role(kind="Prefill"), "spec.roles[0].kind", 'supported values: "Server"'),
    "several Pods per replica": (with_role(size=2), "spec.roles[0].size", "less than or equal to 1"),
    "1025 replicas": (with_role(replicas=1025), "spec.roles[0].replicas", "less than or equal to 1024"),
    "no image": (with_role(image=None), "spec.roles[0].image", "Required"),
    "deployment name of 57": (
        deployment(name="d" * 57, roles=[role(name="a")]),
        "metadata.name",
        "56",
    ),
    "deployment and role of 54": (
        deployment(name="d" * 47),
        "spec.roles",
        "<deployment>-<role> has at most 53 characters",
    ),
    "deployment name with a dot": (deployment(name="a.b"), "metadata.name", "should match"),
    "serving port that is not there": (
        with_role(servingPort="grpc"),
        "spec.roles[0].servingPort",
        "servingPort must name one of ports",
    ),
    "port number twice": (
        with_role(ports=[{"name": "a", "port": 1}, {"name": "b", "port": 1}]),
        "spec.roles[0].ports",
        "once per protocol",
    ),
    "port name without a letter": (
        with_role(ports=[{"name": "80", "port": 80}]),
        "spec.roles[0].ports[0].name",
        "needs a letter",
    ),
    "port 0": (
        with_role(ports=[{"name": "a", "port": 0}]),
        "spec.roles[0].ports[0].port",
        "greater than or equal to 1",
    ),
    "grace of 14 s": (
        with_role(terminationGracePeriodSeconds=14),
        "spec.roles[0].terminationGracePeriodSeconds",
        "greater than or equal to 15",
    ),
    "startup of 59 s": (
        with_role(startupSeconds=59),
        "spec.roles[0].startupSeconds",
        "greater than or equal to 60",
    ),
    "liveness of 29 s": (
        with_role(livenessSeconds=29),
        "spec.roles[0].livenessSeconds",
        "greater than or equal to 30",
    ),
    "shared memory that is no quantity": (with_role(shmSize="big"), "spec.roles[0].shmSize", "should match"),
    "command and arguments": (
        with_role(command=["serve"], extraArgs=["--x"]),
        "spec.roles[0].extraArgs",
        "command is the whole argv",
    ),
    "environment of ours": (
        with_role(env=[{"name": "EBB_MEMBER_INDEX", "value": "1"}]),
        "spec.roles[0].env[0].name",
        "variables that begin with EBB_",
    ),
    "environment of ours from a map": (
        with_role(envFrom=[{"prefix": "EBB_", "configMapRef": {"name": "x"}}]),
        "spec.roles[0].envFrom[0].prefix",
        "variables that begin with EBB_",
    ),
    "variable with two values": (
        with_role(
            env=[{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
        ),
        "spec.roles[0].env[0].value",
        "exclude each other",
    ),
    "label of ours": (with_role(podLabels={"ebb.dev/replica": "1"}), "spec.roles[0].podLabels", OWNED_KEYS),
    "identity label": (
        with_role(podLabels={"app.kubernetes.io/instance": "x"}),
        "spec.roles[0].podLabels",
        OWNED_KEYS,
    ),
    "label of Kueue's": (
        with_role(podLabels={"kueue.x-k8s.io/a": "1"}),
        "spec.roles[0].podLabels",
        OWNED_KEYS,
    ),
    "scrape annotation": (
        with_role(podAnnotations={"prometheus.io/port": "1"}),
        "spec.roles[0].podAnnotations",
        OWNED_KEYS,
    ),
    "volume of ours": (
        with_role(volumes=[{"name": "ebb-shm", "emptyDir": {}}]),
        "spec.roles[0].volumes[0].name",
        "begin with ebb-",
    ),
    "init container main": (
        with_role(initContainers=[{"name": "main", "image": "x"}]),
        "spec.roles[0].initContainers[0].name",
        "`main` is the engine",
    ),
    "lifecycle": (
        with_role(lifecycle={"preStop": {}}),
        "strict decoding error",
        'unknown field "spec.roles[0].lifecycle"',
    ),
    "positional model": (with_role(extraArgs=["other"]), "spec.roles[0].extraArgs", "must be a flag"),
    "--model": (
        with_role(extraArgs=["--model", "x"]),
        "spec.roles[0].extraArgs",
        "--model stands for it too",
    ),
    "--model=": (
        with_role(extraArgs=["--seed", "1", "--model=x"]),
        "spec.roles[0].extraArgs",
        "spec.model.path",
    ),
    "--model-path": (with_role(extraArgs=["--model-path", "x"]), "spec.roles[0].extraArgs", "--model-path"),
    "--served_model_name=": (
        with_role(extraArgs=["--served_model_name=x"]),
        "spec.roles[0].extraArgs",
        "--served-model-name is refused",
    ),
    "--served-model": (
        with_role(extraArgs=["--served-model", "x"]),
        "spec.roles[0].extraArgs",
        "--served-model-name is refused",
    ),
    "--config": (with_role(extraArgs=["--config=x"]), "spec.roles[0].extraArgs", "--config is refused"),
    "--enable-metrics": (
        with_role(extraArgs=["--enable-metrics"]),
        "spec.roles[0].extraArgs",
        "--enable-metrics is refused",
    ),
    "withdrawal of 11 s": (
        deployment(retirement={"withdrawSeconds": 11}),
        "spec.retirement.withdrawSeconds",
        "greater than or equal to 12",
    ),
    "budgets that do not fit": (
        deployment(retirement={"drainSeconds": 241}),
        "spec.retirement.totalSeconds",
        "totalSeconds must be at least",
    ),
    "over four hours": (
        deployment(retirement={"totalSeconds": 14401}),
        "spec.retirement.totalSeconds",
        "less than or equal to 14400",
    ),
    "unknown way without a router": (
        deployment(retirement={"withoutRouter": "Delete"}),
        "spec.retirement.withoutRouter",
        'supported values: "Hold"',
    ),
    "router not offered yet": (
        routed(name="llm-d-router"),
        "spec.router.name",
        'supported values: "vllm-router"',
    ),
    "router for another engine": (
        routed() | {"spec": routed()["spec"] | {"engine": {"name": "SGLang"}}},
        "spec.router.name",
        "vllm-router serves vLLM only",
    ),
    "router without an image": (routed(image=None), "spec.router.image", "Required"),
    "router --policy": (
        routed(extraArgs=["--policy", "random"]),
        "spec.router.extraArgs",
        "pinned to one that counts requests",
    ),
    "router --prometheus-*": (
        routed(extraArgs=["--prometheus-duration-buckets=1"]),
        "spec.router.extraArgs",
        "--prometheus-* is refused",
    ),
    "router --x-selector": (
        routed(extraArgs=["--encode-selector", "a=b"]),
        "spec.router.extraArgs",
        "--*-selector is refused",
    ),
    "router key": (routed(extraArgs=["--api_key=x"]), "spec.router.extraArgs", "--api-key* is refused"),
    "routed over UDP": (
        routed(role(ports=[{"name": "a", "port": 1, "protocol": "UDP"}])),
        "spec.roles",
        "behind a router the serving port is TCP",
    ),
    "routed on two ports": (
        routed(role(name="a"), role(name="b", ports=[{"name": "http", "port": 8001}])),
        "spec.roles",
        "behind a router all roles serve on one port",
    ),
    "routed over TLS": (
        routed(role(extraArgs=["--ssl_certfile=/c"])),
        "spec.roles",
        "behind a router engines serve plain HTTP",
    ),
}

VALID: Final[dict[str, dict[str, Any]]] = {
    "least": deployment(),
    "SGLang": deployment(engine={"name": "SGLang"}, model={"name": "org/tiny", "path": "/models/tiny"}),
    "nothing running": with_role(replicas=0),
    "longest names": deployment(name="d" * 46),
    "two roles": deployment(roles=[role(name="a"), role(name="b", kind="Server")], entryRole="b"),
    "take-over": with_role(command=["sh", "-c", "exec serve"], terminationGracePeriodSeconds=3600),
    "flags that resemble ours": with_role(
        extraArgs=[
            "--model-impl",
            "auto",
            "--config-format=auto",
            "-tp",
            "2",
            "--host",
            "0.0.0.0",
            "--port=9000",
        ]
    ),
    "prefill flags": with_role(extraArgs=["--kv-transfer-config", '{"kv_role": "kv_both"}']),
    "TLS without a router": with_role(extraArgs=["--ssl-certfile", "/c", "--ssl-keyfile", "/k"]),
    "environment": with_role(
        env=[
            {"name": "A", "value": ""},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
            {"name": "C", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
        ],
        envFrom=[{"prefix": "X_", "secretRef": {"name": "s"}}, {"configMapRef": {"name": "c"}}],
    ),
    "whole Pod": with_role(
        imagePullPolicy="Always",
        imagePullSecrets=[{"name": "hub"}],
        resources={"limits": {"cpu": 1, "nvidia.com/gpu": "1"}, "requests": {"memory": "1.5Gi"}},
        nodeSelector={"a": "b"},
        tolerations=[{"operator": "Exists"}],
        affinity={"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
        runtimeClassName="nvidia",
        priorityClassName="high",
        schedulerName="other",
        dnsPolicy="ClusterFirst",
        serviceAccountName="engine",
        securityContext={"runAsUser": 1000},
        podSecurityContext={"fsGroup": 1},
        topologySpreadConstraints=[
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
        ],
        initContainers=[{"name": "fetch", "image": "x", "restartPolicy": "Always"}],
        podLabels={"team": "nlp", "app.kubernetes.io/part-of": "chat"},
        podAnnotations={"example.com/a": "b"},
        ports=[{"name": "http", "port": 8000}, {"name": "quic", "port": 8000, "protocol": "UDP"}],
        servingPort="http",
        volumes=[{"name": "m", "hostPath": {"path": "/models"}}],
        volumeMounts=[{"name": "m", "mountPath": "/models", "readOnly": True}],
        shmSize=17179869184,
        startupSeconds=14400,
        livenessSeconds=3600,
    ),
    "largest budgets": deployment(
        retirement={
            "withdrawSeconds": 3600,
            "drainSeconds": 3600,
            "settleSeconds": 3600,
            "totalSeconds": 14400,
        }
    ),
    "routed": routed(
        role(
            name="a", ports=[{"name": "admin", "port": 9}, {"name": "web", "port": 8000}], servingPort="web"
        ),
        role(name="b"),
        replicas=3,
        imagePullPolicy="Never",
        extraArgs=["--log-level", "debug"],
        resources={"requests": {"cpu": "100m"}},
        requestTimeoutSeconds=3600,
    ),
    **{
        f"sample {path.stem}": yaml.safe_load(path.read_text(encoding="utf-8"))
        for path in sorted(SAMPLES.glob("*.yaml"))
    },
}


@pytest.mark.parametrize(("wrong", "field", "words"), INVALID.values(), ids=INVALID.keys())
async def test_refused(client: Client, wrong: dict[str, Any], field: str, words: str) -> None:
    """A wrong object is refused when it is written, with the path of the field and a reason that helps."""
    with pytest.raises(ApiError) as refusal:
        await client.request(
            "POST", MODEL_DEPLOYMENTS.path(namespace=NAMESPACE), query=DRY_RUN, body=without_none(wrong)
        )
    assert refusal.value.status in (400, 422)
    assert words in str(refusal.value)
    assert f"{field}:" in str(refusal.value)


@pytest.mark.parametrize("right", VALID.values(), ids=VALID.keys())
async def test_accepted(client: Client, right: dict[str, Any]) -> None:
    """A right object is taken, and no field of it is dropped."""
    answer = await client.request(
        "POST", MODEL_DEPLOYMENTS.path(namespace=NAMESPACE), query=DRY_RUN, body=right
    )
    assert_kept(right["spec"], answer.body["spec"])


def assert_kept(given: Any, stored: Any, path: str = "spec") -> None:
    """Everything that was given is stored; defaults may have been added."""
    if isinstance(given, dict):
        for key, value in given.items():
            assert key in stored, f"{path}.{key}"
            assert_kept(value, stored[key], f"{path}.{key}")
    elif isinstance(given, list):
        assert len(given) == len(stored), path
        for index, value in enumerate(given):
            assert_kept(value, stored[index], f"{path}[{index}]")
    else:
        assert given == stored, path


def without_none(value: Any) -> Any:
    """The object as a user would send it who left those fields out."""
    if isinstance(value, dict):
        return {key: without_none(inner) for key, inner in value.items() if inner is not None}
    return [without_none(inner) for inner in value] if isinstance(value, list) else value
