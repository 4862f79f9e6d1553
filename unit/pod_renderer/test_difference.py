"""Which field turns a Pod over, and what is nobody's edit."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from apis.v1alpha1.model_deployment import ModelDeploymentSpec
from controller.pod_renderer.difference import UNSET, changed_fields
from controller.pod_renderer.owner import Owner
from controller.pod_renderer.pod import render_pod

Raw = dict[str, Any]

ROLE: Raw = {
    "name": "server",
    "image": "engine:1",
    "env": [{"name": "A", "value": "1"}, {"name": "EMPTY", "value": ""}],
    "resources": {"limits": {"memory": "1024Mi", "cpu": "1000m"}},
    "nodeSelector": {"pool": "a"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "shmSize": "1024Mi",
    "podLabels": {"team": "x"},
}


def render(**changes: Any) -> Raw:
    """The Pod of a role with these changes; None takes a field out."""
    role = {key: value for key, value in {**ROLE, **changes}.items() if value is not None}
    body = {"model": {"name": "m"}, "engine": {"name": "vLLM"}, "roles": [role]}
    spec = ModelDeploymentSpec.model_validate(body)
    owner = Owner(name="chat", namespace="default", uid="u")
    return copy.deepcopy(render_pod(owner, spec, spec.roles[0], ordinal=0))


def live() -> Raw:
    """The Pod of `ROLE` as an API server has it: defaults, quantities in its own form, additions of others."""
    pod = render()
    main = pod["spec"]["containers"][0]
    main["resources"]["limits"] = {"memory": "1Gi", "cpu": "1"}
    main["terminationMessagePath"] = "/dev/termination-log"
    main["env"] = [{"name": "A", "value": "1"}, {"name": "EMPTY"}, {"name": "INJECTED", "value": "x"}]
    main["volumeMounts"].append({"name": "kube-api-access", "mountPath": "/var/run/secrets"})
    pod["spec"]["containers"].append({"name": "sidecar", "image": "mesh:1"})
    pod["spec"]["volumes"][0]["emptyDir"]["sizeLimit"] = "1Gi"
    pod["spec"]["tolerations"].append({"key": "node.kubernetes.io/not-ready", "operator": "Exists"})
    pod["spec"] |= {"nodeName": "node", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler"}
    pod["metadata"]["labels"]["added"] = "by somebody"
    return pod


def with_env(value: str) -> Raw:
    return {"env": [{"name": "A", "value": value}, {"name": "EMPTY", "value": ""}]}


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"image": "engine:2"}, ("spec.containers[main].image",)),
        (with_env("2"), ("spec.containers[main].env[A].value",)),
        ({"env": [*ROLE["env"], {"name": "B", "value": "1"}]}, ("spec.containers[main].env[B]",)),
        ({"extraArgs": ["--seed", "1"]}, ("spec.containers[main].command",)),
        ({"terminationGracePeriodSeconds": 60}, ("spec.terminationGracePeriodSeconds",)),
        ({"resources": {"limits": {"memory": "2Gi", "cpu": 1}}}, ("spec.containers[main].resources.limits",)),
        ({"shmSize": "2Gi"}, ("spec.volumes[ebb-shm].emptyDir.sizeLimit",)),
        ({"tolerations": [{"key": "tpu", "operator": "Exists"}]}, ("spec.tolerations",)),
        ({"podLabels": {"team": "y"}}, ("metadata.labels[team]",)),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_edit_is_named(changes: Raw, fields: tuple[str, ...]) -> None:
    """B08-03 The paths of the edit are told, and nothing that defaults or admission put into the live Pod."""
    assert changed_fields(render(**changes), live()) == fields


@pytest.mark.parametrize(
    ("changes", "meant"),
    [
        ({"nodeSelector": None}, ", of spec.nodeSelector"),
        ({"env": ROLE["env"][1:]}, ", of spec.containers[main].env[A]"),
        ({"podLabels": None}, ""),
    ],
    ids=["selector", "variable", "label"],
)
def test_what_is_no_longer_set(changes: Raw, meant: str) -> None:
    """A field taken out is told as such, with what only the live Pod has, which may be more than the edit."""
    assert changed_fields(render(**changes), render()) == (f"{UNSET}{meant}",)


def test_several_fields_in_the_order_of_the_render() -> None:
    """Each changed field is told once."""
    found = changed_fields(render(image="engine:2", podLabels={"team": "y"}, **with_env("2")), live())
    assert found == (
        "metadata.labels[team]",
        "spec.containers[main].image",
        "spec.containers[main].env[A].value",
    )
