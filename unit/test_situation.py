"""What a pass decides on: the spec, or why there is none to decide on."""

from __future__ import annotations

from typing import Any

from apis.v1alpha1.conditions import Reason
from controller.situation import Snapshot
from controller.snapshot import DeploymentView
from unit.builders import at


def snapshot(**role: Any) -> Snapshot:
    """Of a deployment whose one role declares three replicas and has these fields."""
    raw: dict[str, Any] = {
        "metadata": {"name": "chat", "namespace": "default", "uid": "u", "generation": 1},
        "spec": {
            "model": {"name": "m"},
            "engine": {"name": "vLLM"},
            "roles": [{"name": "server", "replicas": 3, "image": "engine"} | role],
        },
    }
    return Snapshot.of(DeploymentView(raw), at(0))


def test_spec_that_comes_too_early() -> None:
    """A spec that this release does not carry out renders nothing, and still counts as declared what it declares."""
    early = snapshot(size=2)
    assert early.spec is None
    ((path, reason),) = [(problem.path, problem.condition_reason) for problem in early.problems]
    assert (path, reason) == ("spec.roles[0].size", Reason.NOT_SUPPORTED_YET)
    assert early.wanted.replicas == {"server": 3}


def test_spec_that_cannot_be_read() -> None:
    """A spec with a value that no release knows is plainly invalid."""
    (problem,) = snapshot(kind="Encode").problems
    assert (problem.path, problem.condition_reason) == ("spec.roles[0].kind", Reason.INVALID)


def test_spec_that_is_carried_out() -> None:
    """A supported spec is there, without a problem."""
    fine = snapshot(size=1)
    assert fine.spec is not None and fine.problems == ()
