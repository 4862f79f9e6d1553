"""Whole objects, as they go to the API server: `golden/` holds specs beside what is rendered from them.

The hashes in there are a promise to running clusters: a release that changes one turns every such Pod over.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from apis.v1alpha1.model_deployment import ModelDeploymentSpec
from controller.pod_renderer.pod import render_pod
from controller.pod_renderer.problems import spec_problems
from controller.pod_renderer.router import render_router
from controller.pod_renderer.services import render_services
from unit.pod_renderer.specs import OWNER, hook_command, main

GOLDEN: Final = Path(__file__).with_name("golden")
PROGRAM: Final = "<program>"
"""Stands for the text of the drain hook, which has tests of its own."""


def load(path: Path) -> tuple[ModelDeploymentSpec, dict[str, Any]]:
    case = yaml.safe_load(path.read_text(encoding="utf-8"))
    spec = ModelDeploymentSpec.model_validate(case["spec"])
    assert spec_problems(OWNER, spec) == ()
    return spec, case


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("pod_*.yaml")), ids=lambda path: path.stem)
def test_pod(path: Path) -> None:
    """A Pod is rendered whole as the golden file shows it, hash included."""
    spec, case = load(path)
    pod = render_pod(OWNER, spec, spec.roles[0], ordinal=case["ordinal"])
    if "lifecycle" in main(pod):
        assert "def " in hook_command(pod)[2]
        hook_command(pod)[2] = PROGRAM
    assert pod == case["pod"]


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("objects_*.yaml")), ids=lambda path: path.stem)
def test_services_and_router(path: Path) -> None:
    """Services, and with a router what the router needs, are rendered whole as the golden file shows them."""
    spec, case = load(path)
    assert render_services(OWNER, spec) == case["services"]
    assert render_router(OWNER, spec) == case["router"]
