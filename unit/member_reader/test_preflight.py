"""What a Pod itself shows before anything is asked of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from apis.v1alpha1 import labels
from controller.member_reader.preflight import ReadPlan, plan_read, preflight
from controller.member_reader.verdict import Reading, Verdict
from controller.snapshot import PodView
from unit.member_reader.pods import TARGET, pod

OTHERS: list[tuple[dict[str, Any], str]] = [
    ({"metadata": {"uid": "other"}}, "now carries uid other"),
    ({"metadata": {"ownerReferences": []}}, "owned by no ModelDeployment"),
    (
        {
            "metadata": {
                "ownerReferences": [
                    {"apiVersion": labels.API_VERSION, "kind": labels.KIND, "uid": "x", "controller": True}
                ]
            }
        },
        "owned by x",
    ),
    ({"metadata": {"deletionTimestamp": "2030-01-01T00:00:00Z"}}, "terminating"),
    ({"container": {"restartCount": 1}}, "restarted once since admission"),
    ({"container": {"restartCount": 3}}, "restarted 3 times since admission"),
    ({"container": {"containerID": "containerd://bbbb"}}, "another one than at admission"),
    ({"container": {"containerID": ""}}, "no identity"),
    ({"container": {"state": {"terminated": {}}}}, "terminated rather than running"),
    ({"container": {"state": {"waiting": {}}}}, "waiting rather than running"),
    ({"container": {"state": {}}}, "in no state rather than running"),
    ({"status": {"containerStatuses": []}}, "rather than running"),
    ({"annotations": {labels.SCRAPE_PORT: None}}, "nothing to read"),
    ({"annotations": {labels.SCRAPE_PORT: "http"}}, "name no URL"),
    ({"annotations": {labels.SCRAPE_PORT: "0"}}, "name no URL"),
    ({"annotations": {labels.SCRAPE_PORT: "65536"}}, "name no URL"),
    ({"annotations": {labels.SCRAPE_SCHEME: "gopher"}}, "name no URL"),
    ({"annotations": {labels.SCRAPE_SCHEME: None}}, "name no URL"),
    ({"annotations": {labels.SCRAPE_PATH: "metrics"}}, "name no URL"),
    ({"annotations": {labels.SCRAPE_PATH: "/a b\r\n"}}, "name no URL"),
]


def refusal(made: dict[str, Any], **changes: Any) -> Reading:
    found = preflight(PodView(made), replace(TARGET, **changes))
    assert found is not None
    return found


@pytest.mark.parametrize(("changes", "says"), OTHERS)
def test_held(changes: dict[str, Any], says: str) -> None:
    """G4 G11 Another Pod, owner or process, or nothing to read: held, and the reason says which."""
    found = refusal(pod(**changes))
    assert found.verdict is Verdict.UNKNOWN
    assert says in found.reason


def test_no_container() -> None:
    """G4 A Pod without the engine container is held."""
    made = pod()
    made["spec"]["containers"][0]["name"] = "proxy"
    found = refusal(made)
    assert (found.verdict, "no container main" in found.reason) == (Verdict.UNKNOWN, True)


def test_no_identity() -> None:
    """G10 G11 A target without a UID, or without its deployment's, names nobody: held."""
    assert "names no member" in refusal(pod(), uid="").reason
    assert "not by this deployment" in refusal(pod(), owner_uid="").reason


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["vllm", "serve", "/m", "--data-parallel-external-lb"], "--data-parallel-external-lb"),
        (["vllm", "serve", "/m", "-dpn", "1"], "--data-parallel-rank"),
        (
            ["python3", "-m", "sglang.launch_server", "--disaggregation-mode=decode"],
            "--disaggregation-mode decode",
        ),
        (["vllm", "serve", "/m", "$(EXTRA)"], "EXTRA"),
        (["sh", "-c", "vllm serve /m"], "sh"),
    ],
)
def test_refused(command: list[str], says: str) -> None:
    """G4 Prefill, decode and outside balancing, or a command that cannot be read, are refused naming the flag."""
    found = refusal(pod(command=command))
    assert found.verdict is Verdict.UNSUPPORTED
    assert says in found.reason


def test_taken_over_and_disaggregated() -> None:
    """A role with its own command that plainly is a decoder is refused: waiting for metrics would not help."""
    made = pod(command=["launch", "--disaggregation-mode", "decode"], annotations={labels.SCRAPE_PORT: None})
    assert refusal(made).verdict is Verdict.UNSUPPORTED


def test_taken_over_by_a_script() -> None:
    """A role with its own command, here a script, has nothing to read: held."""
    made = pod(command=["sh", "-c", "launch"], annotations={labels.SCRAPE_PORT: None})
    assert refusal(made).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("engine", ["Custom", ""])
def test_unknown_engine(engine: str) -> None:
    """G4 An engine without a gauge list is refused by its name."""
    found = refusal(pod(), engine=engine)
    assert found.verdict is Verdict.UNSUPPORTED
    assert (engine or "unnamed") in found.reason


def test_readable() -> None:
    """G13 The annotations are used as given, https is kept, and the ranks of the command are owed."""
    made = pod(
        command=["vllm", "serve", "/m", "--data-parallel-size", "2"],
        annotations={
            labels.SCRAPE_SCHEME: "https",
            labels.SCRAPE_PORT: "8200",
            labels.SCRAPE_PATH: "/a/metrics",
        },
    )
    plan = plan_read(PodView(made), TARGET)
    assert isinstance(plan, ReadPlan)
    assert (plan.url, plan.ranks) == ("https://127.0.0.1:8200/a/metrics", 2)
    assert preflight(PodView(made), TARGET) is None


def test_a_restart_before_admission() -> None:
    """G9 A container that had restarted before admission, but not since, is read."""
    made = pod(container={"restartCount": 4})
    assert preflight(PodView(made), replace(TARGET, restart_count=4)) is None


def test_a_field_of_the_pod() -> None:
    """A flag's value from the Pod's own labels is read from there."""
    made = pod(command=["vllm", "serve", "/m", "--member", "$(MEMBER)"])
    made["spec"]["containers"][0]["env"] = [
        {"name": "MEMBER", "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{labels.MEMBER}']"}}}
    ]
    assert preflight(PodView(made), TARGET) is None
