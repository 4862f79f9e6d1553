"""Kubernetes Events are written beside the pass, tried a few times, and never twice."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from controller.cluster.client import ApiError, NoAnswerError
from controller.telemetry.events import ATTEMPTS, MAX_NOTE, MAX_WAITING, EventRecorder
from unit.cluster.virtual_clock import VirtualClock

DEPLOYMENT = {
    "apiVersion": "ebb.dev/v1alpha1",
    "kind": "ModelDeployment",
    "metadata": {"name": "chat", "namespace": "ns", "uid": "u-1", "resourceVersion": "12"},
}


class Recording:
    """A recorder whose creations answer in the order of `outcomes`, then succeed."""

    def __init__(self, *outcomes: Exception) -> None:
        self.clock = VirtualClock()
        self.outcomes = list(outcomes)
        self.sent: list[Mapping[str, Any]] = []
        self.recorder = EventRecorder(
            create=self._create, clock=self.clock, random=Random(1), instance="pod-1"
        )

    async def _create(self, namespace: str, event: Mapping[str, Any]) -> None:
        assert namespace == event["metadata"]["namespace"]
        self.sent.append(event)
        if self.outcomes:
            raise self.outcomes.pop(0)

    def emit(self, message: str = "replica server/1 is draining") -> None:
        self.recorder.emit(DEPLOYMENT, type="Normal", reason="RetirementDraining", message=message)

    async def run(self, seconds: float = 60) -> None:
        task = asyncio.create_task(self.recorder.run())
        await self.clock.advance(seconds)
        await self.recorder.flushed()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_an_event_is_whole() -> None:
    """An Event names the object, the transition and the controller, in the form of events.k8s.io/v1."""
    recording = Recording()
    recording.emit()
    await recording.run()
    [event] = recording.sent
    name = event["metadata"].pop("name")
    assert name.startswith("chat.")
    assert event == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": "ns"},
        "eventTime": "2030-01-01T00:00:00.000000Z",
        "type": "Normal",
        "reason": "RetirementDraining",
        "action": "RetirementDraining",
        "note": "replica server/1 is draining",
        "reportingController": "ebb.dev/controller",
        "reportingInstance": "pod-1",
        "regarding": {
            "apiVersion": "ebb.dev/v1alpha1",
            "kind": "ModelDeployment",
            "namespace": "ns",
            "name": "chat",
            "uid": "u-1",
            "resourceVersion": "12",
        },
    }


async def test_a_long_note_is_cut_at_a_character() -> None:
    """A note longer than the API takes is cut to its bound in bytes, at a whole character, and says so."""
    recording = Recording()
    recording.emit("é" * MAX_NOTE)
    await recording.run()
    note = recording.sent[0]["note"]
    assert len(note.encode()) <= MAX_NOTE
    assert note.endswith("é…")


@pytest.mark.parametrize(
    "failure",
    [
        NoAnswerError("reset"),
        ApiError(status=500, reason="InternalError", message="etcd"),
        ApiError(status=429, reason="TooManyRequests", message="slow down"),
    ],
)
async def test_a_write_that_may_have_failed_is_repeated_under_its_name(failure: Exception) -> None:
    """An Event without a definite answer is sent again under the same name, so it cannot be doubled."""
    recording = Recording(failure, ApiError(status=409, reason="AlreadyExists", message="exists"))
    recording.emit()
    await recording.run()
    first, second = recording.sent
    assert first["metadata"]["name"] == second["metadata"]["name"]


async def test_a_refused_event_is_dropped_at_once() -> None:
    """An Event that the API server refuses is not sent again, and the next one is."""
    recording = Recording(ApiError(status=403, reason="Forbidden", message="no"))
    recording.emit("first")
    recording.emit("second")
    await recording.run()
    assert [event["note"] for event in recording.sent] == ["first", "second"]


async def test_an_event_that_cannot_be_written_is_dropped_in_the_end() -> None:
    """After a few attempts an Event is given up; it stands in nobody's way."""
    recording = Recording(*[NoAnswerError("refused")] * ATTEMPTS)
    recording.emit("first")
    recording.emit("second")
    await recording.run()
    assert [event["note"] for event in recording.sent] == ["first"] * ATTEMPTS + ["second"]


async def test_emitting_never_waits() -> None:
    """When too many wait, further ones are dropped: emitting neither blocks nor fails a pass."""
    recording = Recording()
    for number in range(MAX_WAITING + 5):
        recording.emit(str(number))
    await recording.run()
    assert len(recording.sent) == MAX_WAITING
