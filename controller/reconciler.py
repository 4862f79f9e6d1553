"""One pass over one deployment: snapshot, plans, effects in a crash-safe order, status.

The order is: reserve in the status, then labels, then routers, then deletes by UID, then creates, then Services, then
the rest of the status. A pass that moves the stored operation does nothing else, so whatever is done was stored first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import structlog

from apis.v1alpha1 import labels
from apis.v1alpha1.conditions import ConditionType, Reason
from apis.v1alpha1.model_deployment import ModelDeploymentSpec
from controller.attempts import Attempts
from controller.caches import Caches, Key
from controller.clock import Clock
from controller.cluster.client import Client
from controller.cluster.reads import list_pods
from controller.cluster.resources import MODEL_DEPLOYMENTS
from controller.cluster.writes import Writer
from controller.filling import Filling
from controller.infrastructure import Infrastructure
from controller.pod_renderer.services import endpoint
from controller.pods import Pods
from controller.retirement_planner.planner import Event, Step, admit, advance
from controller.retirement_planner.state import Operation, Policy, State
from controller.retirement_planner.targets import Removal, Unhandled, would_empty_endpoint
from controller.retiring import Retiring
from controller.rolling import Rolling
from controller.rollout_planner import RolloutPlan
from controller.routers.ownership import RouterOwnership
from controller.situation import Snapshot, seats_of
from controller.snapshot import DeploymentView, PodView
from controller.status import Departure, Picture, RouterFacts, compute_status
from controller.telemetry.events import EventRecorder
from controller.telemetry.metrics import Metrics

RETRY_SECONDS: Final = 30.0
"""When what waits for somebody else is looked at again though nothing changed."""
TROUBLE_SECONDS: Final = 2.0
"""The same while a budget runs."""


@dataclass(frozen=True, slots=True)
class Result:
    """When to look again though nothing happens, and what this pass could not do."""

    after: float | None = None
    """Seconds; None for never."""
    failed: str = ""
    """What failed and is tried again with backoff; "" when nothing did."""
    retry_after: float | None = None
    """The seconds that the API server asked to be left alone for."""


class Reconciler:
    """Brings one deployment a step closer to its spec. Stateless but for what may be lost at any time."""

    def __init__(
        self,
        *,
        client: Client,
        caches: Caches,
        ownership: RouterOwnership,
        writer: Writer,
        pods: Pods,
        infrastructure: Infrastructure,
        filling: Filling,
        retiring: Retiring,
        rolling: Rolling,
        events: EventRecorder,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._client = client
        self._caches = caches
        self._ownership = ownership
        self._writer = writer
        self._pods = pods
        self._infrastructure = infrastructure
        self._filling = filling
        self._retiring = retiring
        self._rolling = rolling
        self._events = events
        self._clock = clock
        self._metrics = metrics
        self._log = structlog.get_logger("reconciler")

    async def reconcile(self, key: Key) -> Result:
        """One pass. Raises ApiError or NoAnswerError when nothing could be decided or stored; the queue comes back."""
        raw = self._caches.deployment(key)
        if raw is None:
            self._forget(key)
            return Result()
        deployment = DeploymentView(raw)
        if deployment.terminating:
            return await self._tear_down(deployment)
        if labels.FINALIZER not in deployment.finalizers:
            await self._set_finalizers(deployment, [*deployment.finalizers, labels.FINALIZER])
            return Result(after=0.0)
        snapshot = await self._gather(deployment)
        operation = snapshot.operation
        self._metrics.retirement_is(key, operation.state if operation else None)
        attempts = Attempts()
        if operation is None:
            result = await self._without_operation(snapshot, attempts)
        else:
            result = await self._with_operation(snapshot, operation, attempts)
        return replace(result, failed=attempts.failed, retry_after=attempts.retry_after)

    def _forget(self, key: Key) -> None:
        self._retiring.forget(key)
        self._infrastructure.forget(key)
        self._filling.forget(key)
        self._metrics.retirement_is(key, None)

    # --- the snapshot -----------------------------------------------------------------------------------

    async def _gather(self, deployment: DeploymentView) -> Snapshot:
        """The deployment from the cache; its Pods uncached as soon as anything may end in a delete."""
        snapshot = Snapshot.of(deployment, self._clock.now())
        cached = snapshot.with_pods(self._caches.pods(snapshot.key))
        recorded = cached.operation is not None or cached.departing or cached.rollout
        if not recorded and not cached.removals.replicas and not seats_of(cached).outdated:
            return await self._with_own_routers(cached)
        live = await self._live_pods(deployment)
        return replace(await self._with_own_routers(snapshot.with_pods(live)), now=self._clock.now())

    async def _with_own_routers(self, snapshot: Snapshot) -> Snapshot:
        """Without Pods that only carry the labels of a router."""
        routers = await self._ownership.sort(snapshot.routers, deployment_uid=snapshot.deployment.uid)
        return replace(snapshot, routers=routers.ours)

    async def _live_pods(self, deployment: DeploymentView) -> Sequence[PodView]:
        selector = f"{labels.INSTANCE}={deployment.name},{labels.MANAGED_BY}={labels.EBB}"
        return await list_pods(self._client, namespace=deployment.namespace, selector=selector)

    # --- removals ---------------------------------------------------------------------------------------

    async def _without_operation(self, snapshot: Snapshot, attempts: Attempts) -> Result:
        late = {uid for departure in snapshot.departing for uid in departure.uids}
        candidates = [removal for removal in snapshot.removals.replicas if not removal.uids & late]
        if snapshot.deployment.paused:
            waiting = "removals wait while the deployment is paused" if candidates else ""
            return await self._ordinary(snapshot, attempts, waiting)
        if snapshot.spec is None:
            waiting = "removals wait until the spec is valid" if candidates else ""
            return await self._ordinary(snapshot, attempts, waiting)
        removing = await self._clean_up_unused(candidates, attempts)
        for removal in candidates:
            if not removal.ever_ran:
                continue
            gate = would_empty_endpoint(
                removal, wanted=snapshot.wanted, pods=snapshot.pods, reserved=snapshot.reserved_uids
            )
            if gate:
                return await self._ordinary(snapshot, attempts, gate, removing=removing)
            return await self._admit(snapshot, snapshot.spec, removal)
        return await self._ordinary(snapshot, attempts, "", removing=removing)

    async def _clean_up_unused(self, removals: Sequence[Removal], attempts: Attempts) -> bool:
        """Replicas whose engine never ran have nothing to drain; they leave directly, also while an operation runs.

        Returns whether there were any.
        """
        unused = [removal for removal in removals if not removal.ever_ran]
        for removal in unused:
            with attempts:
                await self._pods.clean_up(removal.pods, "it never ran")
        return bool(unused)

    async def _admit(self, snapshot: Snapshot, spec: ModelDeploymentSpec, removal: Removal) -> Result:
        operation = admit(
            removal,
            policy=Policy.of(_policy(spec)),
            generation=snapshot.deployment.generation,
            now=snapshot.now,
        )
        if await self._store(replace(snapshot, operation=operation), ""):
            self._metrics.retirement_entered(operation.state)
            message = f"{removal.title} is being retired: {removal.cause}"
            self._emit(snapshot, Event("Normal", "RetirementAdmitted", message))
        return Result(after=0.0)

    async def _with_operation(self, snapshot: Snapshot, operation: Operation, attempts: Attempts) -> Result:
        step = advance(operation, await self._retiring.facts(snapshot, operation), snapshot.now)
        others = [r for r in snapshot.removals.replicas if not r.uids & operation.target_uids]
        titles = ", ".join(removal.title for removal in others)
        waiting = f"{titles} stays until the removal of {operation.title} is over" if titles else ""
        if step.operation is None:
            return await self._finish(snapshot, operation, step)
        if _moved(operation, step.operation):
            return await self._move(snapshot, operation, step.operation, step, waiting)
        trouble = await self._retiring.act(snapshot, operation, step)
        removing = bool(step.delete)
        if snapshot.spec is not None and not snapshot.deployment.paused:
            removing |= await self._clean_up_unused(others, attempts)
        progressed = replace(step.operation, reason=trouble) if trouble else step.operation
        shown, rationed = self._retiring.rationed(snapshot.key, operation, progressed)
        result = await self._ordinary(
            replace(snapshot, operation=shown), attempts, waiting, removing=removing
        )
        again = TROUBLE_SECONDS if trouble else None
        return Result(after=_earliest(result.after, rationed, again, _until(step, snapshot)))

    async def _move(
        self, snapshot: Snapshot, stored: Operation, moved: Operation, step: Step, waiting: str
    ) -> Result:
        if await self._store(replace(snapshot, operation=moved), waiting):
            if moved.state is not stored.state:
                self._metrics.retirement_entered(moved.state)
            self._log.info(
                "retirement",
                deployment="/".join(snapshot.key),
                replica=stored.title,
                state=moved.state,
                reason=moved.reason,
            )
            for event in step.events:
                self._emit(snapshot, event)
            if moved.state is State.ABORTED:
                # Nothing more is asked of it: an observation that was due must not be made.
                self._retiring.forget(snapshot.key)
        return Result(after=0.0)

    async def _finish(self, snapshot: Snapshot, operation: Operation, step: Step) -> Result:
        """Clear the record; its events are told once that is stored."""
        departing = snapshot.departing
        if step.departing:
            late = Departure(
                role=operation.role,
                ordinal=operation.ordinal,
                uids=tuple(sorted(operation.target_uids)),
                reason=step.sentence,
                since=snapshot.now.latest.strftime("%Y-%m-%dT%H:%M:%SZ"),
                workload_uid=operation.workload_uid,
            )
            departing = (*departing, late)
        await self._store(replace(snapshot, operation=None, departing=departing), "")
        if operation.state is State.SETTLING:
            self._metrics.retirement_entered(State.COMPLETED)
        self._log.info(
            "retirement over",
            deployment="/".join(snapshot.key),
            replica=operation.title,
            how=step.sentence,
        )
        for event in step.events:
            self._emit(snapshot, event)
        self._retiring.forget(snapshot.key)
        return Result(after=0.0)

    # --- what every pass does ---------------------------------------------------------------------------

    async def _ordinary(
        self, snapshot: Snapshot, attempts: Attempts, waiting: str, *, removing: bool = False
    ) -> Result:
        """`removing`: the pass takes capacity away, so no step of a rollout may take more."""
        snapshot = snapshot.without_departed()
        await self._restore_labels(snapshot, attempts)
        spec, key = snapshot.spec, snapshot.key
        if spec is not None and not snapshot.deployment.paused:
            removing |= await self._filling.fill(snapshot, spec, attempts)
            with attempts:
                await self._infrastructure.align(snapshot.owner, spec)
        else:
            self._filling.forget(key)
        begin = not (removing or attempts.failed)
        rollout, undone = self._plan_rollout(snapshot, begin=begin), False
        with attempts:
            rollout, undone = await self._rolling.act(rollout)
        begun = list(self._rolling.begun(snapshot, rollout))
        if await self._store(snapshot, waiting, rollout):
            for message in begun:
                self._emit(snapshot, Event("Normal", "RolloutStep", message))
            self._tell_refusal(snapshot)
        if begun:
            return Result(after=0.0)
        unfinished = RETRY_SECONDS if undone or self._infrastructure.unfinished(key) else None
        return Result(after=_earliest(unfinished, self._filling.again(key)))

    def _tell_refusal(self, snapshot: Snapshot) -> None:
        """One Event when creates begin to be refused; the condition says it for as long as they are."""
        refused = self._filling.refused(snapshot.key)
        if refused and snapshot.deployment.reason_of(ConditionType.ROLES_READY) != Reason.CREATE_REFUSED:
            self._emit(snapshot, Event("Warning", Reason.CREATE_REFUSED, refused[0]))

    def _plan_rollout(self, snapshot: Snapshot, *, begin: bool) -> RolloutPlan:
        return self._rolling.plan(snapshot, refused=self._filling.refused(snapshot.key), begin=begin)

    async def _restore_labels(self, snapshot: Snapshot, attempts: Attempts) -> None:
        """Whatever is not on its way out is offered to service: after an abort, a cancel, or a hand's edit."""
        strays = {pod.uid for pod, why in snapshot.removals.unhandled if why is Unhandled.SURPLUS}
        for pod in snapshot.pods:
            kept = pod.uid not in snapshot.reserved_uids and pod.uid not in strays
            if kept and pod.seat and not (pod.eligible_label or pod.terminating or pod.terminal):
                with attempts:
                    await self._pods.offer(pod)

    async def _store(self, snapshot: Snapshot, waiting: str, rollout: RolloutPlan | None = None) -> bool:
        """Write the status if it differs, on the very version that was decided on. Returns whether it was written."""
        deployment, spec = snapshot.deployment, snapshot.spec
        router, url = None, str(deployment.status.get("endpoint", ""))
        if spec is not None:
            ready = sum(1 for pod in snapshot.routers if pod.ready and not pod.terminating)
            if spec.router is not None:
                router = RouterFacts(desired=spec.router.replicas, ready=ready)
            url = endpoint(snapshot.owner, spec, router_ready=ready > 0)
        picture = Picture(
            deployment=deployment,
            spec=spec,
            problems=(*snapshot.problems, *self._infrastructure.problems(snapshot.key)),
            pods=snapshot.pods,
            outdated=seats_of(snapshot).outdated,
            operation=snapshot.operation,
            departing=snapshot.departing,
            rollout=rollout or self._plan_rollout(snapshot, begin=False),
            unhandled=snapshot.removals.unhandled,
            waiting=waiting,
            refused_creates=self._filling.refused(snapshot.key),
            router=router,
            endpoint=url,
            waiting_reason=_waiting_reason(snapshot),
        )
        status = compute_status(picture, snapshot.now.latest)
        if status == dict(deployment.status):
            return False
        await self._writer.replace_status(MODEL_DEPLOYMENTS, {**deployment.raw, "status": status})
        return True

    def _emit(self, snapshot: Snapshot, event: Event) -> None:
        self._events.emit(
            snapshot.deployment.raw, type=event.type, reason=event.reason, message=event.message
        )

    # --- the end of the whole deployment ----------------------------------------------------------------

    async def _tear_down(self, deployment: DeploymentView) -> Result:
        """All Pods leave by their own drain window; then the finalizer comes off."""
        self._forget((deployment.namespace, deployment.name))
        if labels.FINALIZER not in deployment.finalizers:
            return Result()
        snapshot = Snapshot.of(deployment, self._clock.now()).with_pods(await self._live_pods(deployment))
        for pod in snapshot.pods:
            if not pod.terminating:
                await self._pods.delete(namespace=pod.namespace, name=pod.name, uid=pod.uid)
        if snapshot.pods:
            await self._store(replace(snapshot, operation=None, departing=(), rollout=()), "")
            return Result(after=RETRY_SECONDS)
        await self._set_finalizers(deployment, [f for f in deployment.finalizers if f != labels.FINALIZER])
        return Result()

    async def _set_finalizers(self, deployment: DeploymentView, finalizers: Sequence[str]) -> None:
        await self._writer.patch(
            MODEL_DEPLOYMENTS,
            {"metadata": {"finalizers": list(finalizers)}},
            namespace=deployment.namespace,
            name=deployment.name,
            uid=deployment.uid,
            resource_version=deployment.resource_version,
        )


def _moved(stored: Operation, planned: Operation) -> bool:
    """Whether the record itself moves, as against the running figures of the same state."""
    same_figures = replace(
        planned, reason=stored.reason, in_flight=stored.in_flight, last_read_at=stored.last_read_at
    )
    return same_figures != stored


def _until(step: Step, snapshot: Snapshot) -> float | None:
    """Seconds to the step's own alarm, a little past it so that the early edge of the time has passed it too."""
    if step.wake_at is None:
        return None
    return max(0.05, (step.wake_at - snapshot.now.earliest).total_seconds() + 0.05)


def _waiting_reason(snapshot: Snapshot) -> Reason:
    """What keeps a removal from being admitted."""
    if snapshot.deployment.paused:
        return Reason.PAUSED
    return Reason.SPEC_INVALID if snapshot.spec is None else Reason.WOULD_EMPTY_ENDPOINT


def _earliest(*times: float | None) -> float | None:
    known = [time for time in times if time is not None]
    return min(known) if known else None


def _policy(spec: ModelDeploymentSpec) -> dict[str, Any]:
    """`spec.retirement` as it is stored with an operation, in the API's own form."""
    return spec.retirement.model_dump(by_alias=True, mode="json", exclude_none=True)
