"""One call of a pass fails: the rest of the pass happens, the status tells, and budgets keep their alarms."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from apis.v1alpha1 import labels
from controller.cluster.client import ApiError, NoAnswerError, Response
from controller.cluster.resources import SERVICES
from unit.reconciler.deployments import condition, labelled, operation, phase, settled, state
from unit.reconciler.wire import Between, Call, Send, straight
from unit.reconciler.world import KEEPER, NAME, TARGET, THIRD, World

pytestmark = pytest.mark.control_plane

FAILURES = [
    pytest.param(ApiError(status=403, reason="Forbidden", message="not today"), id="403"),
    pytest.param(
        ApiError(status=429, reason="TooManyRequests", message="slow down", retry_after=7), id="429"
    ),
    pytest.param(ApiError(status=500, reason="InternalError", message="failed calling webhook"), id="500"),
    pytest.param(NoAnswerError("reset by the peer"), id="no answer"),
]


def failing(error: Exception, which: Callable[[Call], bool]) -> Between:
    async def between(call: Call, send: Send) -> Response:
        if which(call):
            raise error
        return await send()

    return between


@pytest.mark.parametrize("error", FAILURES)
async def test_label_that_cannot_be_restored(world: World, error: Exception) -> None:
    """One Pod's label cannot be put back: the lost replica beside it is made anew, and the status goes on."""
    await world.ready()
    world.interpose(failing(error, lambda call: call.is_("patch", "pods") and call.name == TARGET))
    await world.label_pod(TARGET, labels.ENDPOINT_ELIGIBLE, None)
    await world.delete_pod(KEEPER)
    await world.until(lambda d: phase(d) != "Ready")
    await world.until(lambda d: phase(d) == "Ready", within=30)
    assert not labelled(await world.pod(TARGET))
    world.interpose(straight)
    await world.let_pass(90)
    assert labelled(await world.pod(TARGET))


@pytest.mark.parametrize("error", FAILURES)
async def test_service_that_cannot_be_aligned(world: World, error: Exception) -> None:
    """A Service cannot be put right while a replica retires: its drain budget ends when it should, and is told."""
    await world.ready()
    world.engines.in_flight[TARGET] = 1
    await world.scale(1)
    await world.until(lambda d: state(d) == "Draining")
    drained_at = world.clock.monotonic()
    world.interpose(failing(error, lambda call: call.is_("patch", "services")))
    await world.patch(SERVICES, NAME, {"spec": {"selector": {"zone": "b"}}})
    await world.until(lambda d: state(d) == "Aborted", within=300)
    assert world.clock.monotonic() - drained_at <= 240 + 2
    world.interpose(straight)
    await world.let_pass(90)
    service = await world.get(SERVICES, NAME)
    assert service is not None and "zone" not in service["spec"]["selector"]


async def test_failing_calls_are_not_repeated_without_end(world: World) -> None:
    """Calls that fail for ten minutes come in a row that thins out to one in a minute and a half."""
    await world.ready()
    error = ApiError(status=500, reason="InternalError", message="failed calling webhook")
    world.interpose(failing(error, lambda call: call.is_("patch", "services")))
    await world.patch(SERVICES, NAME, {"spec": {"selector": {"zone": "b"}}})
    await world.let_pass(300)
    calls = world.book.calls
    await world.let_pass(600)
    assert 6 <= world.book.calls - calls <= 11
    assert condition(await world.deployment(), "Ready")["status"] == "True"


async def test_never_started_replica_that_cannot_be_cleaned_up(world: World) -> None:
    """A replica that never ran and cannot be deleted holds nobody up: the running retirement ends as ever."""
    await world.ready()
    world.kubelet.not_started.add(THIRD)
    await world.scale(3)
    await world.settle()
    error = ApiError(status=500, reason="InternalError", message="failed calling webhook")
    world.interpose(failing(error, lambda call: call.is_("delete", "pods") and call.name == THIRD))
    await world.scale(1)
    await world.until(lambda d: bool(operation(d)), within=120)
    await world.until(lambda d: not operation(d), within=120)
    assert await world.pod_names() == [KEEPER, THIRD]
    world.interpose(straight)
    await world.until(settled, within=120)
