"""What the documents promise: commands that are there, links that lead somewhere, output that is printed."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from apis.v1alpha1.conditions import REASONS, ConditionType
from apis.v1alpha1.model_deployment import ModelDeploymentSpec
from controller.cli.report import report_deployment
from controller.cli.text import why_lines
from tools import conditions
from unit.cli.objects import deployment, pod, retirement, stamp

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def relative_links(path: Path) -> Iterator[str]:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8")):
        if "://" not in target:
            yield target


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    """Every relative link of a document names a file or folder that is there."""
    for target in relative_links(document):
        assert (document.parent / target).exists(), target


def test_every_document_is_in_the_index() -> None:
    """docs/README.md names every document below docs/."""
    index = ROOT / "docs" / "README.md"
    named = {(index.parent / target).resolve() for target in relative_links(index)}
    assert set((ROOT / "docs").rglob("*.md")) - {index} <= named


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_are_there(document: Path) -> None:
    """Every `make` target that a document names exists."""
    named = re.findall(r"(?:`|\$ )make ([a-z0-9-]+)", document.read_text(encoding="utf-8"))
    assert set(named) <= make_targets()


def test_make_lists_its_targets() -> None:
    """`make` alone prints a line for every target a person may call."""
    shown = subprocess.run(
        ["make", "-s", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert {line.split()[1] for line in shown.splitlines()} == make_targets() - {"help"} | {"help"}


def test_manifest_folders_are_there() -> None:
    """Every folder that the quick start applies with -k is a kustomization."""
    for folder in re.findall(r"kubectl apply -k (\S+)", README):
        assert (ROOT / folder / "kustomization.yaml").is_file(), folder


def test_the_sample_is_valid() -> None:
    """The deployment of the quick start is one that the API takes."""
    block = re.search(r"```yaml\n(apiVersion: ebb.*?)```", README, flags=re.DOTALL)
    assert block is not None
    spec = ModelDeploymentSpec.model_validate(yaml.safe_load(block[1])["spec"])
    assert (spec.roles[0].replicas, spec.router is not None) == (2, True)


def test_the_answer_of_why_is_what_is_printed() -> None:
    """The output of `ebb why` in the README is what the code prints for such a deployment."""
    uid = "5f3c0c5e-6d0e-4a8c-9a53-0f1f0c7d8a11"
    container = "containerd://8c1f0d2b7a64e5"
    operation = retirement(
        "Draining",
        phase_started=7,
        inFlight=3,
        lastReadAt=stamp(9),
        withdrawnSince=stamp(2),
        reason="server/1 holds 3 in flight",
        targetMembers=[
            {"uid": uid, "name": "chat-server-r1-m0", "containerID": container, "restartCount": 0}
        ],
    )
    now = datetime(2026, 5, 4, 12, 0, 11, tzinfo=UTC)
    pods = [pod(0), pod(1, uid=uid, container=container)]
    printed = "\n".join(why_lines(report_deployment(deployment(replicas=1, retirement=operation), pods, now)))
    block = re.search(r"\$ ebb why chat\n(.*?)\n```", README, flags=re.DOTALL)
    assert block is not None
    assert block[1] == printed


def test_conditions_are_documented_as_they_are() -> None:
    """docs/conditions.md is what the API says of its own conditions and reasons, and no condition is left out."""
    assert set(REASONS) == set(ConditionType)
    assert (ROOT / "docs" / "conditions.md").read_text(encoding="utf-8") == conditions.render()
