"""The invariants of the retirement protocol, checked against the writes that an API server was asked for.

Fed by whoever saw the requests: the recording client of a test, or the audit log of a node. It knows nothing of how
the controller works, only what must never be seen from outside. Names are those of the protocol (S1, S2, ...).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from apis.v1alpha1 import labels
from controller.clock import parse_time

Raw = Mapping[str, Any]

FORWARD: Final = ("Admitted", "Disqualified", "Withdrawing", "Draining", "Deleting", "Settling")
OLDEST_WRITTEN: Final = 10.0
"""Seconds by which evidence may have aged when `Deleting` is stored on it."""
OLDEST_ACTED_ON: Final = 15.0
"""Seconds by which evidence may have aged when the first delete is sent on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiWrite:
    """One request that changes something, and what became of it at the API server (not: what its sender was told)."""

    verb: str
    """`create`, `update`, `patch` or `delete`."""
    resource: str
    """The plural, as in the path."""
    namespace: str
    name: str
    subresource: str = ""
    body: Raw = field(default_factory=dict)
    """What was sent."""
    answer: Raw = field(default_factory=dict)
    """The object as it was then; empty when unknown or refused."""
    code: int
    """The status; 0 for a request that never arrived."""
    at: datetime
    own: bool = True
    """Whether the controller sent it; what others write is not judged, but may be the reason for what it does."""

    @property
    def done(self) -> bool:
        return 200 <= self.code < 300

    @property
    def uid(self) -> str:
        """The UID that a delete demands, "" when it would take whatever carries the name."""
        return str((self.body.get("preconditions") or {}).get("uid") or "")

    @property
    def conditional(self) -> bool:
        """Whether a delete also demands the very version that was judged: the form of every cleanup."""
        return bool((self.body.get("preconditions") or {}).get("resourceVersion"))

    def is_of(self, resource: str, subresource: str = "") -> bool:
        return (self.resource, self.subresource) == (resource, subresource)

    def __str__(self) -> str:
        what = "/".join(part for part in (self.resource, self.name, self.subresource) if part)
        return f"{self.verb} {what} -> {self.code or 'not sent'}"


@dataclass(slots=True)
class _Deployment:
    """What is known of one deployment from the writes so far."""

    record: Raw | None = None
    """`status.retirement` as it was last stored."""
    terminating: bool = False
    label_off: set[str] = field(default_factory=set)
    """UIDs of targets whose eligibility label went off during this operation."""
    deleted: set[str] = field(default_factory=set)
    """UIDs of targets of this operation for which a delete was accepted."""
    rolling: set[str] = field(default_factory=set)
    """UIDs that give way to successors, as `status.rollout` was last stored."""
    begun: bool = False
    """Whether a delete of this operation was sent and not definitely refused."""

    @property
    def state(self) -> str:
        return str(self.record["state"]) if self.record else ""

    @property
    def targets(self) -> Mapping[str, str]:
        """UID -> name."""
        members = self.record["targetMembers"] if self.record else ()
        return {member["uid"]: member["name"] for member in members}


def violations(writes: Iterable[ApiWrite]) -> list[str]:
    """Every breach of an invariant, as a sentence that names it; the writes in the order of their answers.

    A deployment's own deletion must be among them, whoever asked for it: after that its Pods leave without operations.
    """
    deployments: dict[tuple[str, str], _Deployment] = {}
    return [breach for write in writes for breach in _check(write, deployments)]


def _check(write: ApiWrite, deployments: dict[tuple[str, str], _Deployment]) -> Iterator[str]:
    if write.resource == labels.PLURAL:
        key = (write.namespace, write.name)
        if write.verb == "create" or key not in deployments:
            deployments[key] = _Deployment()
        known = deployments[key]
        known.terminating |= write.done and write.verb == "delete"
        if write.own and write.subresource == "status":
            yield from _status(write, known)
        return
    if not write.own or not write.is_of("pods"):
        return
    # A Pod is its deployment's by the beginning of its name; the longest that fits, since names nest.
    owners = [key for key in deployments if key[0] == write.namespace and write.name.startswith(f"{key[1]}-")]
    known = deployments[max(owners, key=lambda key: len(key[1]))] if owners else _Deployment()
    if write.verb == "delete":
        yield from _delete(write, known)
    elif write.verb == "create" and write.done:
        # A seat of `departing` needs no watch: its name is free for a create only once its Pod has gone.
        if known.state not in ("", "Aborted") and write.name in known.targets.values():
            yield f"S6 {write.name} was created again while its seat was reserved"
    elif write.verb == "patch" and write.done:
        yield from _patch(write, known)


def _status(write: ApiWrite, known: _Deployment) -> Iterator[str]:
    if not (write.body.get("metadata") or {}).get("resourceVersion"):
        yield f"S2 the status of {write.name} was written without the version that was read"
    if not write.done:
        return
    # An audit log may hold requests alone; what was accepted is what was sent.
    status = (write.answer or write.body).get("status") or {}
    slots = status.get("rollout") or ()
    known.rolling = {uid for slot in slots if slot["phase"] == "Leaving" for uid in slot["uids"]}
    before, after = known.record, status.get("retirement")
    departing = status.get("departing") or []
    if before and after and _uids(before) == _uids(after):
        yield from _moved(write, known, before, after)
    else:
        if before:
            yield from _cleared(write, known, departing)
        if after:
            if after["state"] != "Admitted":
                yield f"S5 an operation began in state {after['state']}"
            known.label_off.clear()
            known.deleted.clear()
            known.begun = False
    known.record = after


def _moved(write: ApiWrite, known: _Deployment, before: Raw, after: Raw) -> Iterator[str]:
    """The same operation, perhaps in another state."""
    retried = after.get("lastConsumedToken") != before.get("lastConsumedToken")
    for clock in ("startedAt", "deadline"):
        if after[clock] != before[clock] and not retried:
            yield f"S4 {clock} moved from {before[clock]} to {after[clock]}"
    old, new = str(before["state"]), str(after["state"])
    if new == "Aborted":
        if known.deleted:
            yield "S5 an operation was aborted after a delete of its target had been accepted"
        return
    if old == new:
        return
    if old == "Aborted":
        if not retried:
            yield f"S5 an aborted operation went on to {new} without a retry"
    elif FORWARD.index(new) != FORWARD.index(old) + 1:
        yield f"S5 an operation went from {old} to {new}"
    if new == "Disqualified" and not set(known.targets) <= known.label_off:
        yield "S2 an operation left Admitted while the eligibility label was on a target"
    if new == "Deleting":
        yield from _aged(write, after.get("evidenceAt"), OLDEST_WRITTEN, "Deleting was stored")


def _cleared(write: ApiWrite, known: _Deployment, departing: Iterable[Raw]) -> Iterator[str]:
    """The record went away, or gave way to another one."""
    late = {uid for departure in departing for uid in departure.get("uids") or ()}
    if known.deleted and not known.terminating and known.state != "Settling" and not known.deleted <= late:
        yield f"S5 an operation was dropped in {known.state} after a delete of its target had been accepted"


def _delete(write: ApiWrite, known: _Deployment) -> Iterator[str]:
    if not write.uid:
        yield f"S1 {write.name} was to be deleted without a UID"
    if "gracePeriodSeconds" in write.body:
        yield f"S1 {write.name} was to be deleted with a grace of the controller's own choice"
    if known.terminating:
        return
    if write.conditional:
        if write.uid in known.targets and known.state != "Aborted":
            yield f"S6 the target {write.name} was to be cleaned up beside its operation"
        return
    if write.uid in known.rolling and write.uid not in known.targets:
        return
    if write.uid not in known.targets:
        yield f"S1 {write.name} was to be deleted, but its UID {write.uid} is no target"
    elif known.state != "Deleting":
        yield f"S2 {write.name} was to be deleted in state {known.state}"
    elif not known.begun and known.record:
        yield from _aged(write, known.record.get("evidenceAt"), OLDEST_ACTED_ON, "the first delete was sent")
    if write.uid in known.targets:
        known.begun |= not 400 <= write.code < 500
        known.deleted |= {write.uid} if write.done else set()


def _patch(write: ApiWrite, known: _Deployment) -> Iterator[str]:
    metadata = write.body.get("metadata") or {}
    uid, changed = metadata.get("uid"), metadata.get("labels") or {}
    if not uid:
        yield f"S9 {write.name} was patched without a UID"
    if labels.ENDPOINT_ELIGIBLE not in changed:
        return
    if changed[labels.ENDPOINT_ELIGIBLE] is None:
        if uid not in known.targets or known.state != "Admitted":
            yield f"S2 {write.name} lost its eligibility label without a stored reservation"
        known.label_off.add(str(uid))
    elif uid in known.targets and known.state != "Aborted":
        yield f"S5 the target {write.name} was offered to service again in state {known.state}"


def _aged(write: ApiWrite, evidence_at: str | None, oldest: float, what: str) -> Iterator[str]:
    if not evidence_at:
        yield f"S2 {what} without evidence"
        return
    age = (write.at - parse_time(evidence_at)).total_seconds()
    # The times of an audit log are the server's, those of the record an estimate of them: a second apart at most.
    if age > oldest + 1.0:
        yield f"S2 {what} on evidence that was {age:.1f} s old"


def _uids(record: Raw) -> frozenset[str]:
    return frozenset(member["uid"] for member in record["targetMembers"])
