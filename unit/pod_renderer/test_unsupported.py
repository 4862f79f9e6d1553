"""What the API takes and this release does not carry out: named by field, never half done."""

from __future__ import annotations

from typing import Any

import pytest

from apis.v1alpha1.conditions import Reason
from apis.v1alpha1.model_deployment import ModelDeploymentSpec
from controller.pod_renderer.problems import parse_spec, spec_problems
from unit.pod_renderer.specs import OWNER

ROLE = {"name": "server", "image": "engine:1"}
ROUTER = {"name": "vllm-router", "image": "router:1"}
BUDGET = {"maxUnavailable": 1}


def wanted(role: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """The raw spec with these fields, and its one role with those of `role`."""
    return {"model": {"name": "m"}, "engine": {"name": "vLLM"}, "roles": [ROLE | (role or {})]} | spec


def found(raw: dict[str, Any]) -> dict[str, tuple[Reason, str]]:
    """Reason and sentence by path."""
    spec = parse_spec(raw)
    assert isinstance(spec, ModelDeploymentSpec), spec
    return {
        problem.path: (problem.condition_reason, problem.reason) for problem in spec_problems(OWNER, spec)
    }


EARLY: dict[str, tuple[dict[str, Any], str, str]] = {
    "Custom": (
        wanted({"command": ["serve"]}, engine={"name": "Custom"}),
        "spec.engine.name",
        "vLLM and SGLang",
    ),
    "queue": (wanted(queueName="gold"), "spec.queueName", "Kueue"),
    "prefill": (wanted({"kind": "Prefill"}), "spec.roles[0].kind", "not Prefill"),
    "decode": (wanted({"kind": "Decode"}), "spec.roles[0].kind", "not Decode"),
    "size": (wanted({"size": 2}), "spec.roles[0].size", "replicas of one Pod, not of 2"),
    "budget": (
        wanted({"podDisruptionBudget": BUDGET}),
        "spec.roles[0].podDisruptionBudget",
        "PodDisruptionBudget",
    ),
    "llm-d-router": (
        wanted(router=ROUTER | {"name": "llm-d-router"}),
        "spec.router.name",
        "runs vllm-router, not llm-d-router",
    ),
    "sglang-gateway": (
        wanted(router=ROUTER | {"name": "sglang-gateway"}, engine={"name": "SGLang"}),
        "spec.router.name",
        "runs vllm-router, not sglang-gateway",
    ),
    "router version": (
        wanted(router=ROUTER | {"version": "0.1.15"}),
        "spec.router.version",
        "knows vllm-router 0.1.17, not 0.1.15",
    ),
    "router key": (
        wanted(router=ROUTER | {"apiKeySecretRef": {"name": "s", "key": "k"}}),
        "spec.router.apiKeySecretRef",
        "without a key",
    ),
    "router budget": (
        wanted(router=ROUTER | {"podDisruptionBudget": BUDGET}),
        "spec.router.podDisruptionBudget",
        "PodDisruptionBudget",
    ),
    "observed connections": (
        wanted(retirement={"withoutRouter": "ObserveConnections", "ignorePeers": ["10.0.0.0/8"]}),
        "spec.retirement.withoutRouter",
        "only Hold",
    ),
    "verified release": (
        wanted(retirement={"disaggregated": "VerifiedRelease"}),
        "spec.retirement.disaggregated",
        "only Refuse",
    ),
    "long metrics": (
        wanted(retirement={"maxMetricsBytes": 2 << 20}),
        "spec.retirement.maxMetricsBytes",
        "1048576 bytes",
    ),
    "backoff": (wanted(retirement={"retry": "Backoff"}), "spec.retirement.retry", "only Never"),
}


@pytest.mark.parametrize(("raw", "path", "words"), EARLY.values(), ids=EARLY.keys())
def test_named_by_its_field(raw: dict[str, Any], path: str, words: str) -> None:
    """Each thing that comes too early is one problem, with its path, its reason and what this release does instead."""
    ((where, (reason, sentence)),) = found(raw).items()
    assert (where, reason) == (path, Reason.NOT_SUPPORTED_YET)
    assert words in sentence


def test_defaults_are_supported() -> None:
    """What the API server fills in, written out by a user, is nothing that comes too early."""
    role = {"kind": "Server", "size": 1}
    retirement = {
        "withoutRouter": "Hold",
        "disaggregated": "Refuse",
        "maxMetricsBytes": 1 << 20,
        "retry": "Never",
    }
    assert found(wanted(role, retirement=retirement, router=ROUTER | {"version": "0.1.17"})) == {}


def test_everything_is_told_at_once() -> None:
    """A spec with several such fields names all of them, and what is plainly wrong beside them."""
    raw = wanted({"size": 4, "servingPort": "nope"}, queueName="gold")
    assert {path: reason for path, (reason, _) in found(raw).items()} == {
        "spec.queueName": Reason.NOT_SUPPORTED_YET,
        "spec.roles[0].size": Reason.NOT_SUPPORTED_YET,
        "spec.roles[0].servingPort": Reason.INVALID,
    }
