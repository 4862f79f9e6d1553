"""What the API takes and this release does not carry out, each with its field path.

A spec that asks for one of these is refused whole: half of what it means would be a promise that nobody keeps.
What a later release carries out is taken out of here, and nothing else changes for the user.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from apis.v1alpha1.engine import EngineName
from apis.v1alpha1.model_deployment import ModelDeploymentSpec
from apis.v1alpha1.retirement import DEFAULT_METRICS_BYTES, Disaggregated, Retirement, Retry, WithoutRouter
from apis.v1alpha1.role import Role, RoleKind
from apis.v1alpha1.router import Router, RouterName

KNOWN_ROUTER_VERSION: Final = "0.1.17"
"""Of `vllm-router`. How a replica is withdrawn differs by version, so another one is not taken for this one."""


def unsupported(spec: ModelDeploymentSpec) -> Iterator[tuple[str, str]]:
    """Field path and sentence of everything that the spec asks for too early."""
    if spec.engine.name is EngineName.CUSTOM:
        yield "spec.engine.name", "this release runs vLLM and SGLang, or a `command` under one of these names"
    if spec.queue_name is not None:
        yield "spec.queueName", "this release does not queue replicas with Kueue"
    if spec.router is not None:
        yield from _router(spec.router)
    yield from _retirement(spec.retirement)
    for index, role in enumerate(spec.roles):
        yield from _role(f"spec.roles[{index}]", role)


def _router(router: Router) -> Iterator[tuple[str, str]]:
    if router.name is not RouterName.VLLM_ROUTER:
        yield "spec.router.name", f"this release runs vllm-router, not {router.name.value}"
    elif router.version not in (None, KNOWN_ROUTER_VERSION):
        yield (
            "spec.router.version",
            f"this release knows vllm-router {KNOWN_ROUTER_VERSION}, not {router.version}",
        )
    if router.api_key_secret_ref is not None:
        yield "spec.router.apiKeySecretRef", "this release asks routers without a key"
    if router.pod_disruption_budget is not None:
        yield "spec.router.podDisruptionBudget", "this release makes no PodDisruptionBudget"


def _retirement(retirement: Retirement) -> Iterator[tuple[str, str]]:
    if retirement.without_router is not WithoutRouter.HOLD:
        yield "spec.retirement.withoutRouter", "this release observes no connections: only Hold"
    if retirement.disaggregated is not Disaggregated.REFUSE:
        yield (
            "spec.retirement.disaggregated",
            "this release verifies no release of a prefill cache: only Refuse",
        )
    if retirement.max_metrics_bytes != DEFAULT_METRICS_BYTES:
        yield (
            "spec.retirement.maxMetricsBytes",
            f"this release reads {DEFAULT_METRICS_BYTES} bytes and no more",
        )
    if retirement.retry is not Retry.NEVER:
        yield "spec.retirement.retry", "this release does not try again by itself: only Never"


def _role(path: str, role: Role) -> Iterator[tuple[str, str]]:
    if role.kind is not RoleKind.SERVER:
        yield f"{path}.kind", f"this release runs Server roles, not {role.kind.value}"
    if role.size != 1:
        yield f"{path}.size", f"this release runs replicas of one Pod, not of {role.size}"
    if role.pod_disruption_budget is not None:
        yield f"{path}.podDisruptionBudget", "this release makes no PodDisruptionBudget"
