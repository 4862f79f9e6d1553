"""Right objects: the API server takes them, and keeps every field."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from unit.api_server.objects import deployment, own_engine, role, routed, with_role

SAMPLES: Final = Path(__file__).parents[2] / "manifests" / "samples"

ACCEPTED: Final[dict[str, dict[str, Any]]] = {
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
    "prefill and decode": deployment(
        roles=[
            role(name="p", kind="Prefill", replicas=2),
            role(name="d", kind="Decode", extraArgs=["--max-model-len", "8192"]),
        ],
        retirement={"disaggregated": "VerifiedRelease", "drainSeconds": 30},
    ),
    "decode alone": with_role(kind="Decode"),
    "several Pods per replica": with_role(size=64),
    "names that resemble replicas": deployment(
        roles=[
            role(name="a", size=2),
            role(name="a-rx"),
            role(name="a-r"),
            role(name="b-r0"),
            role(name="a-r00"),
        ],
        entryRole="a",
    ),
    "a replica's name beside roles of one Pod": deployment(
        roles=[role(name="a"), role(name="a-r0")], entryRole="a"
    ),
    "own engine": own_engine(
        port=9100,
        path="/stats/prometheus",
        scheme="HTTPS",
        inFlight=["app:running", "app_waiting"],
        hook=False,
    ),
    "own engine without figures": deployment(engine={"name": "Custom"}, roles=[role(command=["serve"])]),
    "own engine with the least figures": own_engine(),
    "queue": deployment(queueName="gold.team"),
    "longest queue name": deployment(queueName="q" * 63),
    "budget of a role": with_role(podDisruptionBudget={"maxUnavailable": 0}),
    "budget of a role as a share": with_role(podDisruptionBudget={"maxUnavailable": "100%"}),
    "sglang-gateway": routed(engine={"name": "SGLang"}, name="sglang-gateway", version="0.3.2"),
    "llm-d-router": routed(
        name="llm-d-router",
        version="0.10.0",
        retirement={"withdrawSeconds": 25},
        extraArgs=["--v", "4"],
    ),
    "llm-d flags on another router": routed(extraArgs=["--config-file=x"]),
    "router with everything": routed(
        version="0.1.17",
        imagePullSecrets=[{"name": "hub"}],
        terminationGracePeriodSeconds=86400,
        apiKeySecretRef={"name": "keys", "key": "router"},
        podDisruptionBudget={"maxUnavailable": "25%"},
    ),
    "observed connections": deployment(
        retirement={"withoutRouter": "ObserveConnections", "ignorePeers": ["10.0.0.0/8", "fd00::/8"]}
    ),
    "long metrics": deployment(retirement={"maxMetricsBytes": 16 << 20}),
    "retried": deployment(retirement={"retry": "Backoff"}),
    "ten roles": deployment(roles=[role(name=f"r{number}") for number in range(10)], entryRole="r9"),
    "most arguments": with_role(extraArgs=["--x=" + "y" * 100] * 256),
    **{
        f"sample {path.stem}": yaml.safe_load(path.read_text(encoding="utf-8"))
        for path in sorted(SAMPLES.glob("*.yaml"))
    },
}
