"""A rollout's contact with the world: what its next steps are decided on, and the doing of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import structlog

from controller.cluster.client import ApiError
from controller.pod_renderer.difference import changed_fields
from controller.pods import Pods
from controller.rollout_planner import RolloutPlan, Scene, plan_rollout
from controller.situation import Snapshot, render_seat, seats_of

NAMED_FIELDS: Final = 8
"""Changed fields that an Event names before it counts."""


class Rolling:
    """Plans and carries out the steps of rollouts; the order of them is the planner's."""

    def __init__(self, *, pods: Pods) -> None:
        self._pods = pods
        self._log = structlog.get_logger("rolling")

    def plan(self, snapshot: Snapshot, *, refused: Sequence[str], begin: bool) -> RolloutPlan:
        """`refused`: why Pods could not be created; their sentences. `begin` as for `plan_rollout`."""
        strays = {pod.uid for pod, _ in snapshot.removals.unhandled}
        operation = snapshot.operation
        scene = Scene(
            replicas=snapshot.wanted.replicas,
            pods=[pod for pod in snapshot.pods if pod.uid not in strays],
            outdated={pod.uid for pod in seats_of(snapshot).outdated if pod.uid not in strays},
            slots=snapshot.rollout,
            reserved=operation.target_uids if operation else frozenset(),
            hold=_hold(snapshot, refused),
        )
        return plan_rollout(scene, begin=begin)

    async def act(self, plan: RolloutPlan) -> tuple[RolloutPlan, bool]:
        """Delete what gives way now. What the API server refuses is told in the plan, and is to be tried again."""
        refused = []
        for pod in plan.delete:
            self._log.info("rolling out", pod=pod.name, ready=pod.ready)
            try:
                await self._pods.give_way(pod)
            except ApiError as error:
                if error.status == 409:
                    raise
                refused.append(f"{pod.name} cannot be deleted: {error.message}")
        if not refused:
            return plan, False
        return replace(plan, sentence="; ".join([*refused, plan.sentence]), waits=True), True

    def begun(self, snapshot: Snapshot, plan: RolloutPlan) -> Iterator[str]:
        """What is to be told of each step that `plan` begins: which replica, and the fields that turn it over."""
        present = {pod.uid: pod for pod in snapshot.pods}
        for slot in plan.slots:
            if slot in snapshot.rollout:
                continue
            for pod in (present[uid] for uid in slot.uids if uid in present):
                if snapshot.spec is None or pod.seat is None or pod.terminating:
                    continue
                fields = changed_fields(render_seat(snapshot, snapshot.spec, pod.seat), pod.raw)
                named = ", ".join(fields[:NAMED_FIELDS])
                more = f" and {len(fields) - NAMED_FIELDS} more" if len(fields) > NAMED_FIELDS else ""
                yield f"{slot.title} is being replaced; changed: {named}{more}"


def _hold(snapshot: Snapshot, refused: Sequence[str]) -> str:
    if snapshot.deployment.paused:
        return "nothing is replaced while the deployment is paused"
    if snapshot.spec is None:
        return "nothing is replaced until the spec is valid"
    return f"nothing is replaced while a Pod cannot be created ({refused[0]})" if refused else ""
