"""`vllm-router` in front of all roles: a Deployment of its own, which finds replicas by their labels."""

from __future__ import annotations

from typing import Any, Final

from apis.v1alpha1 import labels
from apis.v1alpha1.model_deployment import ModelDeploymentSpec
from apis.v1alpha1.router import Router
from controller.pod_renderer.argv import ANY_ADDRESS
from controller.pod_renderer.env import as_given
from controller.pod_renderer.labels import eligible, identity
from controller.pod_renderer.owner import Owner

API_PORT: Final = 8081
METRICS_PORT: Final = 9090
NOBODY: Final = 65532
ENDPOINTS_LAG_SECONDS: Final = 5
"""A router that leaves keeps listening for this long: it closes its port at SIGTERM, and Services lag behind."""


def render_router(owner: Owner, spec: ModelDeploymentSpec) -> list[dict[str, Any]]:
    """What the router needs, in the order to create it in; empty without a router."""
    if spec.router is None:
        return []
    return [
        _service_account(owner),
        _role(owner),
        _role_binding(owner),
        _service(owner),
        _deployment(owner, spec, spec.router),
    ]


def router_argv(owner: Owner, spec: ModelDeploymentSpec, router: Router) -> list[str]:
    """The command line of `vllm-router` 0.1.17.

    Both host flags are needed, its defaults are loopback. The namespace keeps it from watching the whole
    cluster, and the policy is pinned to one under which it counts requests in flight. The selector names
    leaders that are offered to service, so that a router which starts in the middle of a retirement never
    learns the replica that leaves.
    """
    selector = eligible({**identity(owner), labels.MEMBER: "0"})
    argv = [
        "vllm-router",
        *("--host", ANY_ADDRESS, "--port", str(API_PORT)),
        *("--prometheus-host", ANY_ADDRESS, "--prometheus-port", str(METRICS_PORT)),
        "--service-discovery",
        *("--selector", *(f"{key}={value}" for key, value in selector.items())),
        *("--service-discovery-port", str(spec.entry.served.port)),
        *("--service-discovery-namespace", owner.namespace),
        *("--policy", "cache_aware"),
    ]
    if router.request_timeout_seconds is not None:
        argv += ["--request-timeout-secs", str(router.request_timeout_seconds)]
    return [*argv, *(router.extra_args or ())]


def _metadata(owner: Owner) -> dict[str, Any]:
    return owner.metadata(owner.router_name, _labels(owner))


def _labels(owner: Owner) -> dict[str, str]:
    return identity(owner, labels.ROUTER_COMPONENT)


def _deployment(owner: Owner, spec: ModelDeploymentSpec, router: Router) -> dict[str, Any]:
    pod_spec: dict[str, Any] = {
        "serviceAccountName": owner.router_name,
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": router.termination_grace_period_seconds,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": NOBODY,
            "runAsGroup": NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(owner, spec, router)],
    }
    if router.image_pull_secrets:
        pod_spec["imagePullSecrets"] = as_given(router.image_pull_secrets)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(owner),
        "spec": {
            "replicas": router.replicas,
            "selector": {"matchLabels": _labels(owner)},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1},
            },
            "template": {"metadata": {"labels": _labels(owner)}, "spec": pod_spec},
        },
    }


def _container(owner: Owner, spec: ModelDeploymentSpec, router: Router) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": "router",
        "image": router.image,
        "command": router_argv(owner, spec, router),
        "ports": [
            {"name": "http", "containerPort": API_PORT, "protocol": "TCP"},
            {"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},
        ],
        # Not /health: it says 503 as soon as one of many replicas is down, and 200 with none at all.
        "startupProbe": _probe(period=1, failures=60),
        "readinessProbe": _probe(period=5, failures=3),
        "livenessProbe": _probe(period=10, failures=6),
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(ENDPOINTS_LAG_SECONDS)]}}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
    if router.image_pull_policy is not None:
        container["imagePullPolicy"] = router.image_pull_policy.value
    if router.resources:
        container["resources"] = router.resources
    return container


def _probe(*, period: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": "/liveness", "port": API_PORT, "scheme": "HTTP"},
        "periodSeconds": period,
        "timeoutSeconds": 3,
        "failureThreshold": failures,
    }


def _service(owner: Owner) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(owner),
        "spec": {
            "type": "ClusterIP",
            "selector": _labels(owner),
            "ports": [
                {"name": "http", "port": API_PORT, "protocol": "TCP", "targetPort": API_PORT},
                {"name": "metrics", "port": METRICS_PORT, "protocol": "TCP", "targetPort": METRICS_PORT},
            ],
        },
    }


def _service_account(owner: Owner) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata(owner)}


def _role(owner: Owner) -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": _metadata(owner),
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}],
    }


def _role_binding(owner: Owner) -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": _metadata(owner),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": owner.router_name},
        "subjects": [{"kind": "ServiceAccount", "name": owner.router_name, "namespace": owner.namespace}],
    }
