"""Wrong objects whose fault is in the router or in how replicas leave: object, path of the field, words of a reason."""

from __future__ import annotations

from typing import Any, Final

from unit.api_server.objects import deployment, role, routed

REFUSED: Final[dict[str, tuple[dict[str, Any], str, str]]] = {
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
        'supported values: "Hold", "ObserveConnections"',
    ),
    "unknown router": (
        routed(name="nginx"),
        "spec.router.name",
        'supported values: "llm-d-router", "sglang-gateway", "vllm-router"',
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
    "sglang-gateway for vLLM": (
        routed(name="sglang-gateway"),
        "spec.router.name",
        "sglang-gateway serves SGLang only",
    ),
    "llm-d-router and a short withdrawal": (
        routed(name="llm-d-router", retirement={"withdrawSeconds": 24}),
        "spec.retirement.withdrawSeconds",
        "with llm-d-router withdrawSeconds is at least 25",
    ),
    "llm-d-router --endpoint-selector": (
        routed(name="llm-d-router", extraArgs=["--endpoint-sel=a"]),
        "spec.router.extraArgs",
        "is refused",
    ),
    **{
        f"llm-d-router {flag}": (
            routed(name="llm-d-router", extraArgs=[f"{flag}=x"]),
            "spec.router.extraArgs",
            f"{flag} is refused",
        )
        for flag in (
            "--endpoint-target-ports",
            "--config-file",
            "--secure-serving",
            "--grpc-health-port",
            "--metrics-endpoint-auth",
        )
    },
    "router version in words": (routed(version="latest"), "spec.router.version", "should match"),
    "key without a name in the Secret": (
        routed(apiKeySecretRef={"name": "s"}),
        "spec.router.apiKeySecretRef.key",
        "Required",
    ),
    "router budget in words": (
        routed(podDisruptionBudget={"maxUnavailable": "half"}),
        "spec.router.podDisruptionBudget.maxUnavailable",
        "should match",
    ),
    "65 routers": (routed(replicas=65), "spec.router.replicas", "less than or equal to 64"),
    "router grace of 9 s": (
        routed(terminationGracePeriodSeconds=9),
        "spec.router.terminationGracePeriodSeconds",
        "greater than or equal to 10",
    ),
    "requests of no length": (
        routed(requestTimeoutSeconds=0),
        "spec.router.requestTimeoutSeconds",
        "greater than or equal to 1",
    ),
    "verified release and a short drain": (
        deployment(retirement={"disaggregated": "VerifiedRelease", "drainSeconds": 29}),
        "spec.retirement.drainSeconds",
        "with disaggregated VerifiedRelease drainSeconds is at least 30",
    ),
    "ignored peers that nobody looks at": (
        deployment(retirement={"ignorePeers": ["10.0.0.0/8"]}),
        "spec.retirement.ignorePeers",
        "needs withoutRouter ObserveConnections",
    ),
    "ignored peer without a mask": (
        deployment(retirement={"withoutRouter": "ObserveConnections", "ignorePeers": ["10.0.0.1"]}),
        "spec.retirement.ignorePeers[0]",
        "should match",
    ),
    "metrics of less than 1 MiB": (
        deployment(retirement={"maxMetricsBytes": (1 << 20) - 1}),
        "spec.retirement.maxMetricsBytes",
        "greater than or equal to 1048576",
    ),
    "metrics of more than 16 MiB": (
        deployment(retirement={"maxMetricsBytes": (16 << 20) + 1}),
        "spec.retirement.maxMetricsBytes",
        "less than or equal to 16777216",
    ),
    "unknown retry": (
        deployment(retirement={"retry": "Always"}),
        "spec.retirement.retry",
        'supported values: "Never", "Backoff"',
    ),
    "unknown handling of prefill": (
        deployment(retirement={"disaggregated": "Delete"}),
        "spec.retirement.disaggregated",
        'supported values: "Refuse", "VerifiedRelease"',
    ),
    "drain of 9 s": (
        deployment(retirement={"drainSeconds": 9}),
        "spec.retirement.drainSeconds",
        "greater than or equal to 10",
    ),
    "settle of 4 s": (
        deployment(retirement={"settleSeconds": 4}),
        "spec.retirement.settleSeconds",
        "greater than or equal to 5",
    ),
}
