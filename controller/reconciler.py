"""One pass over one deployment: snapshot, plans, effects in a crash-safe order, status.

The order is: reserve in the status, then labels, then routers, then deletes by UID, then creates, then Services, then
the rest of the status. A pass that changes what is stored does nothing else, so whatever is done has been stored first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import structlog

from apis.v1alpha1 import labels
from apis.v1alpha1.conditions import Reason
from apis.v1alpha1.model_deployment import ModelDeploymentSpec
from controller.caches import Caches, Key
from controller.clock import Clock, Instant
from controller.cluster.client import ApiError, Client, NoAnswerError
from controller.cluster.reads import get_pod, list_pods
from controller.cluster.resources import MODEL_DEPLOYMENTS, PODS
from controller.cluster.writes import Writer
from controller.infrastructure import Infrastructure
from controller.member_reader.verdict import Reading, preflight
from controller.observer import Observer, Subject
from controller.pod_renderer import Owner, endpoint_of, parse_spec, pod_hash, render_pod
from controller.retirement_planner import budgets
from controller.retirement_planner.planner import Facts, Observe, Step, admit, advance
from controller.retirement_planner.planner import Event as PlannedEvent
from controller.retirement_planner.state import Operation, Policy, State, Target, read_operation
from controller.retirement_planner.targets import (
    Removal,
    Removals,
    Wanted,
    removals,
    would_empty_endpoint,
)
from controller.routers.vllm_router import VllmRouter
from controller.seats import SeatPlan, plan_seats
from controller.snapshot import DeploymentView, PodView, Seat
from controller.status import Departure, Picture, RouterFacts, compute_status
from controller.telemetry.events import EventRecorder
from controller.telemetry.metrics import Metrics

PROGRESS_SECONDS: Final = 10.0
"""How often the figures and the sentence of a running operation are written when nothing else is."""
RETRY_SECONDS: Final = 30.0
"""When a refused create is tried again though nothing changed."""


@dataclass(frozen=True, slots=True)
class Result:
    """When to look again though nothing happens: seconds, None for never. The sentence is for the log."""

    after: float | None = None
    sentence: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one pass decides on."""

    deployment: DeploymentView
    spec: ModelDeploymentSpec | None
    problems: tuple[str, ...]
    pods: tuple[PodView, ...]
    routers: tuple[PodView, ...]
    operation: Operation | None
    departing: tuple[Departure, ...]
    now: Instant

    @property
    def key(self) -> Key:
        return (self.deployment.namespace, self.deployment.name)

    @property
    def owner(self) -> Owner:
        return Owner(name=self.deployment.name, namespace=self.deployment.namespace, uid=self.deployment.uid)

    @property
    def wanted(self) -> Wanted | None:
        """What the spec declares, None while it is invalid: then nothing new starts."""
        if self.spec is None:
            return None
        return Wanted(
            replicas={role.name: role.replicas for role in self.spec.roles},
            entry_role=self.spec.entry_role or self.spec.roles[0].name,
            routed=self.spec.router is not None,
        )

    @property
    def reserved_uids(self) -> frozenset[str]:
        """Pods that are on their way out of service."""
        if self.operation is None or not self.operation.holds_reservation:
            return frozenset()
        return self.operation.target_uids

    @property
    def reserved_seats(self) -> frozenset[Seat]:
        seats = {Seat(d.role, d.ordinal, 0) for d in self.departing if d.ordinal is not None}
        if self.operation is not None and self.operation.ordinal is not None:
            seats.add(Seat(self.operation.role, self.operation.ordinal, 0))
        return frozenset(seats)


class Reconciler:
    """Brings one deployment a step closer to its spec. Stateless but for what may be lost at any time."""

    def __init__(
        self,
        *,
        client: Client,
        caches: Caches,
        writer: Writer,
        infrastructure: Infrastructure,
        observer: Observer,
        events: EventRecorder,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._client = client
        self._caches = caches
        self._writer = writer
        self._infrastructure = infrastructure
        self._observer = observer
        self._events = events
        self._clock = clock
        self._metrics = metrics
        self._progress_written: dict[Key, float] = {}
        self._refused: dict[Key, tuple[str, ...]] = {}
        self._log = structlog.get_logger("reconciler")

    async def reconcile(self, key: Key) -> Result:
        """One pass. Raises ApiError or NoAnswerError when a call fails; the queue then comes back with backoff."""
        raw = self._caches.deployment(key)
        if raw is None:
            self._observer.forget(key)
            self._infrastructure.forget(key)
            self._progress_written.pop(key, None)
            self._refused.pop(key, None)
            self._metrics.retirement_is(key, None)
            return Result(sentence="gone")
        deployment = DeploymentView(raw)
        if deployment.terminating:
            return await self._tear_down(deployment)
        if labels.FINALIZER not in deployment.finalizers:
            await self._finalizers(deployment, [*deployment.finalizers, labels.FINALIZER])
            return Result(after=0.0, sentence="finalizer added")
        snapshot = await self._snapshot(deployment)
        self._metrics.retirement_is(key, snapshot.operation and str(snapshot.operation.state))
        if snapshot.operation is None:
            return await self._without_operation(snapshot)
        return await self._with_operation(snapshot, snapshot.operation)

    # --- the snapshot -------------------------------------------------------------------------------------------

    async def _snapshot(self, deployment: DeploymentView) -> Snapshot:
        spec, problems = parse_spec(deployment.raw)
        operation = read_operation(deployment.status.get("retirement"))
        departing = tuple(Departure.read(raw) for raw in deployment.status.get("departing") or ())
        snapshot = Snapshot(
            deployment=deployment,
            spec=spec,
            problems=tuple(f"{problem.path}: {problem.reason}" for problem in problems),
            pods=self._owned(deployment, self._caches.pods((deployment.namespace, deployment.name))),
            routers=self._routers(self._caches.pods((deployment.namespace, deployment.name))),
            operation=operation,
            departing=departing,
            now=self._clock.now(),
        )
        removing = snapshot.wanted is not None and bool(removals(snapshot.wanted, snapshot.pods).replicas)
        if operation is None and not removing and not departing:
            return snapshot
        # Whatever may end in a delete is decided on what the API server has now, never on a cache.
        selector = f"{labels.INSTANCE}={deployment.name},{labels.MANAGED_BY}={labels.EBB}"
        found = await list_pods(self._client, namespace=deployment.namespace, selector=selector)
        return replace(
            snapshot,
            pods=self._owned(deployment, found),
            routers=self._routers(found),
            now=self._clock.now(),
        )

    @staticmethod
    def _owned(deployment: DeploymentView, pods: Sequence[PodView]) -> tuple[PodView, ...]:
        return tuple(pod for pod in pods if pod.owner_uid == deployment.uid)

    @staticmethod
    def _routers(pods: Sequence[PodView]) -> tuple[PodView, ...]:
        return tuple(pod for pod in pods if pod.role == labels.ROUTER_COMPONENT)

    # --- without an operation: admission ------------------------------------------------------------------------

    async def _without_operation(self, snapshot: Snapshot) -> Result:
        wanted = snapshot.wanted
        if wanted is None:
            return await self._ordinary(snapshot, Removals((), ()), "")
        found = removals(wanted, snapshot.pods)
        departing = frozenset(uid for departure in snapshot.departing for uid in departure.uids)
        candidates = [removal for removal in found.replicas if not removal.uids & departing]
        if snapshot.deployment.paused:
            waiting = "removals wait while the deployment is paused" if candidates else ""
            return await self._ordinary(snapshot, found, waiting)
        for removal in candidates:
            if not removal.ever_ran:
                await self._clean_up(removal.pods, "it never ran")
                continue
            gate = would_empty_endpoint(
                removal, wanted=wanted, pods=snapshot.pods, reserved=snapshot.reserved_uids
            )
            if gate:
                return await self._ordinary(snapshot, found, gate)
            return await self._admit(snapshot, found, removal)
        return await self._ordinary(snapshot, found, "")

    async def _admit(self, snapshot: Snapshot, found: Removals, removal: Removal) -> Result:
        if snapshot.spec is None:
            raise RuntimeError("an operation is admitted on a valid spec only")
        policy = Policy.of(_policy(snapshot.spec))
        operation = admit(
            removal, policy=policy, generation=snapshot.deployment.generation, now=snapshot.now
        )
        stored = await self._store(replace(snapshot, operation=operation), found, "")
        if stored:
            self._metrics.retirement_entered(str(operation.state))
            message = f"{removal.title} is being retired: {removal.cause}"
            self._emit(snapshot, PlannedEvent("Normal", "RetirementAdmitted", message))
        return Result(after=0.0, sentence=operation.reason)

    async def _clean_up(self, pods: Sequence[PodView], why: str) -> None:
        """Delete what never served. Both preconditions: a Pod that was bound or started meanwhile is decided again."""
        for pod in pods:
            if not pod.terminating:
                self._log.info("cleaning up", pod=pod.name, why=why)
                await self._writer.delete_pod(
                    namespace=pod.namespace,
                    name=pod.name,
                    uid=pod.uid,
                    resource_version=pod.resource_version,
                )

    # --- with an operation --------------------------------------------------------------------------------------

    async def _with_operation(self, snapshot: Snapshot, operation: Operation) -> Result:
        facts = await self._facts(snapshot, operation)
        step = advance(operation, facts, snapshot.now)
        found = removals(snapshot.wanted, snapshot.pods) if snapshot.wanted else Removals((), ())
        others = [removal for removal in found.replicas if not removal.uids & operation.target_uids]
        waiting = self._behind(operation, others)
        if step.operation is None:
            return await self._finish(snapshot, operation, step, found)
        if _moved(operation, step.operation):
            stored = await self._store(replace(snapshot, operation=step.operation), found, waiting)
            if stored:
                if step.operation.state is not operation.state:
                    self._metrics.retirement_entered(str(step.operation.state))
                self._log.info(
                    "retirement",
                    deployment=snapshot.deployment.name,
                    replica=operation.title,
                    state=step.operation.state,
                    reason=step.operation.reason,
                )
                for event in step.events:
                    self._emit(snapshot, event)
            return Result(after=0.0, sentence=step.sentence)
        await self._act(snapshot, operation, step)
        shown = self._throttled(snapshot.key, operation, step.operation)
        if not snapshot.deployment.paused:
            for removal in others:
                if not removal.ever_ran:
                    await self._clean_up(removal.pods, "it never ran")
        result = await self._ordinary(replace(snapshot, operation=shown), found, waiting)
        wake = None
        if step.wake_at is not None:
            wake = max(0.05, (step.wake_at - snapshot.now.earliest).total_seconds() + 0.05)
        return Result(after=_earliest(result.after, wake), sentence=step.sentence)

    @staticmethod
    def _behind(operation: Operation, others: Sequence[Removal]) -> str:
        """Removals that arrive meanwhile are refused and held; their turn comes when this one is over."""
        titles = ", ".join(removal.title for removal in others)
        return f"{titles} stays until the removal of {operation.title} is over" if titles else ""

    async def _facts(self, snapshot: Snapshot, operation: Operation) -> Facts:
        by_uid = {pod.uid: pod for pod in snapshot.pods}
        targets: dict[str, PodView | None] = {}
        for target in operation.targets:
            pod = by_uid.get(target.uid)
            if pod is None:
                # Not behind the selector is no absence: only the API server's own answer for the name is.
                live = await get_pod(self._client, namespace=snapshot.deployment.namespace, name=target.name)
                pod = live if live is not None and live.uid == target.uid else None
            targets[target.uid] = pod
        chosen = (
            {uid for removal in removals(snapshot.wanted, snapshot.pods).replicas for uid in removal.uids}
            if snapshot.wanted
            else operation.target_uids
        )
        refusals: dict[str, Reading] = {}
        for target in operation.targets:
            pod = targets[target.uid]
            refusal = None if pod is None else preflight(pod, self._member(snapshot, target))
            if refusal is not None:
                refusals[target.uid] = refusal
        return Facts(
            targets=targets,
            routed=self._routed(snapshot),
            cancelled=bool(snapshot.wanted) and not operation.target_uids <= chosen,
            settle_seconds=VllmRouter.abilities.settle_seconds,
            evidence=self._observer.evidence(snapshot.key, operation),
            preflight=refusals,
        )

    def _member(self, snapshot: Snapshot, target: Target) -> Any:
        return self._observer.member(self._subject(snapshot), target)

    @staticmethod
    def _routed(snapshot: Snapshot) -> bool:
        """Evidence is owed by every router Pod that exists, also when the spec names none any more."""
        return bool(snapshot.routers) or (snapshot.spec is not None and snapshot.spec.router is not None)

    def _subject(self, snapshot: Snapshot) -> Subject:
        return Subject(
            namespace=snapshot.deployment.namespace,
            name=snapshot.deployment.name,
            uid=snapshot.deployment.uid,
            engine=str(snapshot.deployment.raw["spec"]["engine"]["name"]),
            adapter=VllmRouter(),
        )

    async def _act(self, snapshot: Snapshot, operation: Operation, step: Step) -> None:
        """The idempotent work of the stored state: labels, then routers, then deletes."""
        for pod in step.label_off:
            await self._label(pod, None)
        subject = self._subject(snapshot)
        for row in step.remove_rows:
            await self._observer.remove_row(subject, router=row.router, address=row.address)
        for target in step.delete:
            await self._delete(snapshot, operation, target)
        if step.observe is not Observe.NOTHING:
            left = (budgets.limit(operation) - snapshot.now.latest).total_seconds()
            self._observer.request(
                subject, operation, observe=step.observe, after=step.observe_after, within=left
            )

    async def _delete(self, snapshot: Snapshot, operation: Operation, target: Target) -> None:
        """One delete with the recorded UID. What came of it is remembered, since it decides whether an abort may be."""
        refusal = ""
        try:
            await self._writer.delete_pod(
                namespace=snapshot.deployment.namespace, name=target.name, uid=target.uid
            )
        except ApiError as error:
            if error.status in (404, 409):
                return
            refusal = error.message if error.definite else ""
        except NoAnswerError:
            self._log.warning("a delete has no definite answer", pod=target.name)
        self._observer.record_delete(snapshot.key, operation, uid=target.uid, refusal=refusal)

    async def _label(self, pod: PodView, value: str | None) -> None:
        await self._writer.patch(
            PODS,
            {"metadata": {"labels": {labels.ENDPOINT_ELIGIBLE: value}}},
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
        )

    async def _finish(
        self, snapshot: Snapshot, operation: Operation, step: Step, found: Removals
    ) -> Result:
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
        if await self._store(replace(snapshot, operation=None, departing=departing), found, ""):
            if operation.state is State.SETTLING:
                self._metrics.retirement_entered(str(State.COMPLETED))
            self._log.info(
                "retirement over", deployment=snapshot.deployment.name, replica=operation.title, how=step.sentence
            )
            for event in step.events:
                self._emit(snapshot, event)
        self._observer.forget(snapshot.key)
        self._progress_written.pop(snapshot.key, None)
        return Result(after=0.0, sentence=step.sentence)

    def _throttled(self, key: Key, stored: Operation, progressed: Operation) -> Operation:
        """The running figures as they may be written now: each write costs every watcher, so they are rationed."""
        same = replace(progressed, last_read_at=stored.last_read_at) == stored
        now = self._clock.monotonic()
        if same or now - self._progress_written.get(key, float("-inf")) < PROGRESS_SECONDS:
            return stored
        self._progress_written[key] = now
        return progressed

    # --- what every pass does -----------------------------------------------------------------------------------

    async def _ordinary(self, snapshot: Snapshot, found: Removals, waiting: str) -> Result:
        snapshot = self._departed(snapshot)
        await self._restore_labels(snapshot, found)
        spec = snapshot.spec
        if spec is not None:
            plan = self._seats(snapshot, spec)
            if not snapshot.deployment.paused:
                held = snapshot.operation.target_uids if snapshot.operation else frozenset()
                await self._clean_up([pod for pod in plan.clean_up if pod.uid not in held], "it has ended")
                self._refused[snapshot.key] = await self._create(snapshot, spec, plan.create)
            await self._infrastructure.align(snapshot.owner, spec)
        await self._store(snapshot, found, waiting)
        retry = self._refused.get(snapshot.key) or self._infrastructure.problems(snapshot.key)
        return Result(after=RETRY_SECONDS if retry else None, sentence=waiting)

    def _seats(self, snapshot: Snapshot, spec: ModelDeploymentSpec) -> SeatPlan:
        return plan_seats(
            replicas={role.name: role.replicas for role in spec.roles},
            pods=snapshot.pods,
            reserved=snapshot.reserved_seats,
            hash_of=lambda seat: pod_hash(self._render(snapshot, spec, seat)),
        )

    def _departed(self, snapshot: Snapshot) -> Snapshot:
        present = {pod.uid for pod in snapshot.pods}
        still = tuple(d for d in snapshot.departing if present & set(d.uids))
        return replace(snapshot, departing=still)

    async def _restore_labels(self, snapshot: Snapshot, found: Removals) -> None:
        """Every replica that is not on its way out is offered to service: after an abort, a cancel, or a hand's edit."""
        strays = {pod.uid for pod, _ in found.unhandled}
        for pod in snapshot.pods:
            kept = pod.uid not in snapshot.reserved_uids and pod.uid not in strays
            if kept and not pod.eligible_label and not pod.terminating and not pod.terminal and pod.seat:
                await self._label(pod, "true")

    @staticmethod
    def _render(snapshot: Snapshot, spec: ModelDeploymentSpec, seat: Seat) -> dict[str, Any]:
        role = next(role for role in spec.roles if role.name == seat.role)
        return render_pod(snapshot.owner, spec, role, ordinal=seat.ordinal, member=seat.member)

    async def _create(
        self, snapshot: Snapshot, spec: ModelDeploymentSpec, seats: Sequence[Seat]
    ) -> tuple[str, ...]:
        """Create what is missing; returns the API server's sentences for what it refused."""
        refused: dict[str, None] = {}
        for seat in seats:
            try:
                await self._writer.create(
                    PODS, self._render(snapshot, spec, seat), namespace=snapshot.deployment.namespace
                )
            except ApiError as error:
                # The name is held by a Pod that is leaving, or by one that the cache has not seen yet.
                if error.status == 409:
                    continue
                if not error.definite or error.status == 429:
                    raise
                refused.setdefault(f"{seat.role}/{seat.ordinal}: {error.message}")
        return tuple(refused)

    async def _store(self, snapshot: Snapshot, found: Removals, waiting: str) -> bool:
        """Write the status if it differs, on the very version that was decided on. Returns whether it was written."""
        deployment, spec = snapshot.deployment, snapshot.spec
        router, endpoint = None, str(deployment.status.get("endpoint", ""))
        outdated: tuple[PodView, ...] = ()
        if spec is not None:
            outdated = self._seats(snapshot, spec).outdated
            ready = sum(1 for pod in snapshot.routers if pod.ready and not pod.terminating)
            if spec.router is not None:
                router = RouterFacts(desired=spec.router.replicas, ready=ready)
            endpoint = endpoint_of(snapshot.owner, spec, router_ready=ready > 0)
        picture = Picture(
            deployment=deployment,
            spec=spec,
            problems=(*snapshot.problems, *self._infrastructure.problems(snapshot.key)),
            pods=snapshot.pods,
            outdated=outdated,
            operation=snapshot.operation,
            departing=snapshot.departing,
            unhandled=found.unhandled,
            waiting=waiting,
            refused_creates=self._refused.get(snapshot.key, ()),
            router=router,
            endpoint=endpoint,
            waiting_reason=Reason.PAUSED if deployment.paused else Reason.WOULD_EMPTY_ENDPOINT,
        )
        status = compute_status(picture, snapshot.now.latest)
        if status == dict(deployment.status):
            return False
        await self._writer.replace_status(MODEL_DEPLOYMENTS, {**deployment.raw, "status": status})
        return True

    def _emit(self, snapshot: Snapshot, event: PlannedEvent) -> None:
        self._events.emit(snapshot.deployment.raw, type=event.type, reason=event.reason, message=event.message)

    # --- the end of the whole deployment ------------------------------------------------------------------------

    async def _tear_down(self, deployment: DeploymentView) -> Result:
        """All Pods leave by their own drain window; then the finalizer comes off."""
        if labels.FINALIZER not in deployment.finalizers:
            return Result(sentence="another finalizer holds it")
        self._observer.forget((deployment.namespace, deployment.name))
        selector = f"{labels.INSTANCE}={deployment.name},{labels.MANAGED_BY}={labels.EBB}"
        found = await list_pods(self._client, namespace=deployment.namespace, selector=selector)
        pods = self._owned(deployment, found)
        for pod in pods:
            if not pod.terminating:
                await self._writer.delete_pod(namespace=pod.namespace, name=pod.name, uid=pod.uid)
        if pods:
            return Result(after=RETRY_SECONDS, sentence=f"{len(pods)} Pods are leaving")
        await self._finalizers(deployment, [f for f in deployment.finalizers if f != labels.FINALIZER])
        return Result(sentence="every Pod has left")

    async def _finalizers(self, deployment: DeploymentView, finalizers: Sequence[str]) -> None:
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
    figures = {"reason": stored.reason, "in_flight": stored.in_flight, "last_read_at": stored.last_read_at}
    return replace(planned, **figures) != stored


def _earliest(*times: float | None) -> float | None:
    known = [time for time in times if time is not None]
    return min(known) if known else None


def _policy(spec: ModelDeploymentSpec) -> dict[str, Any]:
    """`spec.retirement` as it is stored with an operation: in the API's own form, without `retry`."""
    policy = spec.retirement.model_dump(by_alias=True, mode="json", exclude_none=True)
    policy.pop("retry", None)
    return policy
