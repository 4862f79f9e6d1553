"""The models as the controller uses them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from pydantic import ValidationError

from apis.v1alpha1.model_deployment import ModelDeploymentSpec
from apis.v1alpha1.role import Role
from apis.v1alpha1.status import ModelDeploymentStatus

SAMPLES: Final = Path(__file__).parents[2] / "manifests" / "samples"
RAW: Final[dict[str, Any]] = {
    "model": {"name": "m"},
    "engine": {"name": "vLLM"},
    "roles": [{"name": "a", "image": "i"}, {"name": "b", "image": "i", "command": ["serve"]}],
    "entryRole": "b",
}


def test_defaults() -> None:
    """What is not written has the documented default; what has a meaning when unset stays unset."""
    spec = ModelDeploymentSpec.model_validate(RAW)
    role = spec.roles[0]
    assert (role.kind, role.replicas, role.size, role.shm_size) == ("Server", 1, 1, "16Gi")
    assert (role.startup_seconds, role.liveness_seconds) == (1800, 60)
    assert [(port.name, port.port, port.protocol) for port in role.ports] == [("http", 8000, "TCP")]
    assert role.termination_grace_period_seconds is None
    assert spec.model_path == "m"
    assert spec.retirement.model_dump(by_alias=True, mode="json") == {
        "withoutRouter": "Hold",
        "ignorePeers": None,
        "disaggregated": "Refuse",
        "withdrawSeconds": 30,
        "drainSeconds": 240,
        "settleSeconds": 30,
        "totalSeconds": 300,
        "maxMetricsBytes": 1048576,
        "retry": "Never",
    }


def test_roles_are_found_by_name() -> None:
    """The entry role is the named one, else the first; a name that is not there is an error, not a guess."""
    spec = ModelDeploymentSpec.model_validate(RAW)
    assert spec.entry.name == "b"
    assert ModelDeploymentSpec.model_validate(RAW | {"entryRole": None}).entry.name == "a"
    with pytest.raises(LookupError):
        spec.role("c")


def test_a_command_makes_a_takeover() -> None:
    """A role is take-over by having a command, and by nothing else."""
    spec = ModelDeploymentSpec.model_validate(RAW)
    assert [role.is_takeover for role in spec.roles] == [False, True]


def test_the_serving_port() -> None:
    """servingPort names the port that serves, else it is the first one."""
    ports = [{"name": "admin", "port": 1}, {"name": "web", "port": 2}]
    raw = {"name": "a", "image": "i", "ports": ports}
    assert Role.model_validate(raw).served.port == 1
    assert Role.model_validate(raw | {"servingPort": "web"}).served.port == 2
    with pytest.raises(LookupError):
        _ = Role.model_validate(raw | {"servingPort": "x"}).served


def test_a_spec_cannot_be_changed() -> None:
    """What a pass has read stays as it was read."""
    spec = ModelDeploymentSpec.model_validate(RAW)
    with pytest.raises(ValidationError):
        spec.roles[0].replicas = 5


def test_fields_of_a_later_version() -> None:
    """A field that this version does not know is ignored in the spec and carried along in the status."""
    spec = ModelDeploymentSpec.model_validate(RAW | {"later": "gold"})
    assert "later" not in spec.model_dump(by_alias=True)
    status = {"phase": "Ready", "later": {"a": 1}, "router": {"desired": 1, "draining": 2}}
    parsed = ModelDeploymentStatus.model_validate(status)
    assert parsed.model_dump(by_alias=True, exclude_none=True, mode="json") == status


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_samples_are_read(path: Path) -> None:
    """Every sample is a spec that the controller reads without a problem."""
    sample = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert (sample["apiVersion"], sample["kind"]) == ("ebb.dev/v1alpha1", "ModelDeployment")
    ModelDeploymentSpec.model_validate(sample["spec"])
