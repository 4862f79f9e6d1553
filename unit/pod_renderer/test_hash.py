"""What the Pod hash covers, and what it leaves out on purpose."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apis.v1alpha1 import labels
from apis.v1alpha1.model_deployment import ModelDeploymentSpec
from controller.drain_hook import render as hook
from controller.pod_renderer.hash import compute_hash, pod_hash
from controller.pod_renderer.owner import Owner
from controller.pod_renderer.pod import render_pod
from unit.pod_renderer.specs import OWNER, pod, spec

NAMES = st.from_regex(r"[a-z]{1,8}", fullmatch=True)
STRINGS = st.dictionaries(NAMES, st.text("abc09-", max_size=8), max_size=4)
ROLES = st.fixed_dictionaries(
    {},
    optional={
        "replicas": st.integers(0, 9),
        "extraArgs": st.lists(st.sampled_from(["--a", "--b=1", "-c"]), max_size=4),
        "env": st.dictionaries(NAMES, st.text(max_size=8), max_size=4).map(
            lambda variables: [{"name": name, "value": value} for name, value in variables.items()]
        ),
        "podLabels": STRINGS,
        "podAnnotations": STRINGS,
        "nodeSelector": STRINGS,
        "terminationGracePeriodSeconds": st.integers(15, 3600),
    },
)


@given(role=ROLES, ordinal=st.integers(0, 1023))
def test_the_same_seat_has_the_same_hash(role: dict[str, Any], ordinal: int) -> None:
    """A seat rendered twice, from mappings in another order, for a deployment made anew, has one hash."""
    turned: dict[str, Any] = {
        key: dict(reversed(list(value.items()))) if isinstance(value, dict) else value
        for key, value in reversed(list(role.items()))
    }
    once, again = spec(**role), spec(**turned)
    other = Owner(OWNER.name, "elsewhere", "another-uid")
    assert pod_hash(render_pod(OWNER, once, once.roles[0], ordinal=ordinal)) == pod_hash(
        render_pod(other, again, again.roles[0], ordinal=ordinal)
    )


@given(role=ROLES)
def test_defaults_written_out_keep_the_hash(role: dict[str, Any]) -> None:
    """Defaults that the API server writes into the spec change no Pod."""
    defaulted: dict[str, Any] = {
        "kind": "Server",
        "replicas": 1,
        "size": 1,
        "ports": [{"name": "http", "port": 8000, "protocol": "TCP"}],
        "shmSize": "16Gi",
        "startupSeconds": 1800,
        "livenessSeconds": 60,
    }
    assert pod_hash(pod(**role)) == pod_hash(pod(**(defaulted | role)))


@given(role=ROLES)
def test_replicas_fields_do_not_reach_the_pod(role: dict[str, Any]) -> None:
    """Scaling a role, and editing how replicas retire or where the router is, leaves every seat's hash alone."""
    raw = spec(**role).model_dump(mode="json", by_alias=True, exclude_none=True)
    edited = raw | {
        "retirement": {"drainSeconds": 20, "retry": "Backoff"},
        "router": {"name": "vllm-router", "image": "r"},
    }
    edited["roles"] = [raw["roles"][0] | {"replicas": 7}]
    before, after = ModelDeploymentSpec.model_validate(raw), ModelDeploymentSpec.model_validate(edited)
    assert pod_hash(render_pod(OWNER, before, before.roles[0], ordinal=0)) == pod_hash(
        render_pod(OWNER, after, after.roles[0], ordinal=0)
    )


@pytest.mark.parametrize(
    "edit",
    [
        {"image": "engine:2"},
        {"imagePullPolicy": "Never"},
        {"extraArgs": ["--enforce-eager"]},
        {"env": [{"name": "A", "value": "1"}]},
        {"podLabels": {"team": "nlp"}},
        {"podAnnotations": {"note": "x"}},
        {"resources": {"limits": {"cpu": "1"}}},
        {"ports": [{"name": "http", "port": 8001}]},
        {"shmSize": "8Gi"},
        {"terminationGracePeriodSeconds": 45},
        {"startupSeconds": 600},
        {"command": ["serve"]},
    ],
)
def test_every_edit_that_reaches_the_pod_changes_the_hash(edit: dict[str, Any]) -> None:
    """An edit of anything that the Pod runs is seen."""
    assert pod_hash(pod()) != pod_hash(pod(**edit))


def test_seats_differ() -> None:
    """Two ordinals of a role are two seats with two hashes."""
    assert pod_hash(pod(ordinal=0)) != pod_hash(pod(ordinal=1))


def test_the_text_of_the_hook_is_not_covered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fix of the hook's program turns no Pod over; a raised revision turns all over."""
    before = pod_hash(pod())
    monkeypatch.setattr(hook, "_program", lambda: "print('another program')")
    assert pod_hash(pod()) == before
    monkeypatch.setattr(hook, "HOOK_REVISION", hook.HOOK_REVISION + 1)
    assert pod_hash(pod()) != before


def test_the_eligibility_label_is_not_covered() -> None:
    """The label is on a new Pod, and the hash is that of the Pod without it."""
    rendered = pod(command=["serve"])
    assert rendered["metadata"]["labels"].pop(labels.ENDPOINT_ELIGIBLE) == "true"
    digest = rendered["metadata"]["annotations"].pop(labels.POD_HASH)
    assert compute_hash(rendered, None) == digest


@pytest.mark.parametrize("live", [{}, {"metadata": {}}, {"metadata": {"annotations": {"a": "b"}}}])
def test_a_pod_without_a_hash_has_none(live: dict[str, Any]) -> None:
    """A Pod that carries no hash equals no render."""
    assert pod_hash(live) == ""
