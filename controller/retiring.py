"""An operation's contact with the world: the facts that its next step is decided on, and the doing of that step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import structlog

from controller.caches import Key
from controller.clock import Clock
from controller.cluster.client import ApiError, Client, NoAnswerError
from controller.cluster.reads import get_pod
from controller.member_reader.preflight import preflight
from controller.member_reader.verdict import Reading
from controller.observer import Observer, Subject
from controller.pods import Pods
from controller.retirement_planner import budgets
from controller.retirement_planner.evidence import DeleteAnswer
from controller.retirement_planner.planner import Facts, Observe, Step
from controller.retirement_planner.state import Operation, Target
from controller.routers.vllm_router import VllmRouter
from controller.situation import Snapshot
from controller.snapshot import PodView

PROGRESS_SECONDS: Final = 10.0
"""How often the figures and the sentence of a running operation are written when nothing else is."""


class Retiring:
    """Gathers facts for and carries out the steps of operations; decides nothing itself."""

    def __init__(
        self,
        *,
        client: Client,
        pods: Pods,
        observer: Observer,
        clock: Clock,
        handing_over: Callable[[], bool] = lambda: False,
    ) -> None:
        """`handing_over`: whether a write of the process that led before this one may still be on its way."""
        self._handing_over = handing_over
        self._client = client
        self._pods = pods
        self._observer = observer
        self._clock = clock
        self._progress_written: dict[Key, float] = {}
        self._log = structlog.get_logger("retiring")

    def forget(self, key: Key) -> None:
        """Drop what was remembered of an operation that is over."""
        self._observer.forget(key)
        self._progress_written.pop(key, None)

    async def facts(self, snapshot: Snapshot, operation: Operation) -> Facts:
        """What is true now of the targets, from uncached reads, and what was seen so far."""
        present = {pod.uid: pod for pod in snapshot.pods}
        targets: dict[str, PodView | None] = {}
        for target in operation.targets:
            pod = present.get(target.uid)
            if pod is None:
                # Not behind the selector is no absence: only the API server's own answer for the name is.
                live = await get_pod(self._client, namespace=snapshot.deployment.namespace, name=target.name)
                pod = live if live is not None and live.uid == target.uid else None
            targets[target.uid] = pod
        found = snapshot.removals
        unwanted = {uid for removal in found.replicas for uid in removal.uids}
        # A replica whose role was dropped, or whose seat another Pod took, is not wanted back either.
        unwanted |= {pod.uid for pod, _ in found.unhandled}
        subject = subject_of(snapshot)
        refusals: dict[str, Reading] = {}
        for target in operation.targets:
            pod = targets[target.uid]
            refusal = None if pod is None else preflight(pod, subject.member(target))
            if refusal is not None:
                refusals[target.uid] = refusal
        return Facts(
            targets=targets,
            routed=snapshot.routed,
            cancelled=snapshot.spec is not None and not operation.target_uids <= unwanted,
            settle_seconds=subject.adapter.abilities.settle_seconds,
            evidence=self._observer.evidence(snapshot.key, operation),
            preflight=refusals,
            handing_over=self._handing_over(),
        )

    async def act(self, snapshot: Snapshot, operation: Operation, step: Step) -> str:
        """The idempotent work of the stored state: labels, then deletes, then the next observation.

        Returns why a label could not be taken off, "" when there is no such trouble: the budgets bound it, and an abort
        has to tell it.
        """
        for pod in step.label_off:
            try:
                await self._pods.withhold(pod)
            except (ApiError, NoAnswerError) as error:
                return f"the eligibility label of {pod.name} could not be taken off: {error}"
        for target in step.delete:
            await self._delete(snapshot, operation, target)
        if step.observe is not Observe.NOTHING:
            left = (budgets.limit(operation) - snapshot.now.latest).total_seconds()
            self._observer.request(
                subject_of(snapshot),
                operation,
                observe=step.observe,
                after=step.observe_after,
                within=left,
                remove_rows=step.remove_rows,
            )
        return ""

    def rationed(self, key: Key, stored: Operation, progressed: Operation) -> tuple[Operation, float | None]:
        """The running figures as they may be written now, since each write costs every watcher.

        Also says in how many seconds what is held back may be written, None when nothing is.
        """
        if replace(progressed, last_read_at=stored.last_read_at) == stored:
            return stored, None
        now = self._clock.monotonic()
        left = self._progress_written.get(key, float("-inf")) + PROGRESS_SECONDS - now
        if left > 0:
            return stored, left
        self._progress_written[key] = now
        return progressed, None

    async def _delete(self, snapshot: Snapshot, operation: Operation, target: Target) -> None:
        """One delete with the recorded UID. Its answer is remembered: it decides whether an abort may still be."""
        evidence = self._observer.evidence(snapshot.key, operation)
        old = operation.evidence_at is None or (
            self._clock.now().age_of(operation.evidence_at) > budgets.EVIDENCE_DELETE_SECONDS
        )
        if old and not evidence.deletes:
            # The process slept between the decision and this line; the next pass proves the idleness again.
            return
        refused, sentence = False, ""
        try:
            await self._pods.delete(namespace=snapshot.deployment.namespace, name=target.name, uid=target.uid)
        except ApiError as error:
            if error.status in (404, 409):
                return
            refused, sentence = error.definite, str(error)
        except NoAnswerError as error:
            sentence = str(error)
        if sentence:
            self._log.warning("a delete was not accepted", pod=target.name, refused=refused, error=sentence)
        answer = DeleteAnswer(at=self._clock.now().latest, refused=refused, sentence=sentence)
        self._observer.record_delete(snapshot.key, operation, uid=target.uid, answer=answer)


def subject_of(snapshot: Snapshot) -> Subject:
    """Whose routers and members are asked."""
    return Subject(
        namespace=snapshot.deployment.namespace,
        name=snapshot.deployment.name,
        uid=snapshot.deployment.uid,
        engine=str(snapshot.deployment.raw["spec"]["engine"]["name"]),
        adapter=VllmRouter(),
    )
