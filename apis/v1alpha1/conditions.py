"""Condition types and their reasons, each with the sentence that the documentation prints.

A reason says *why* a condition has its status; the message beside it says it about this very deployment.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class _Documented(StrEnum):
    """A string with a sentence of documentation."""

    doc: str

    def __new__(cls, value: str, doc: str) -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.doc = doc
        return member


class ConditionType(_Documented):
    """What a condition is about."""

    READY = "Ready", "Every role has the Ready replicas it declares, and so has the router."
    SPEC_VALID = (
        "SpecValid",
        "The spec can be rendered; when it cannot, running replicas stay exactly as they are.",
    )
    ROLES_READY = "RolesReady", "Every declared replica exists and is Ready."
    REPLICAS_UP_TO_DATE = "ReplicasUpToDate", "Every replica runs what the spec says now."
    REMOVALS_SETTLED = "RemovalsSettled", "Nothing that the spec takes away is still waiting to leave."
    ROUTER_READY = "RouterReady", "The router has the Ready replicas it declares; absent without a router."


class Reason(_Documented):
    """Why a condition is as it is."""

    READY = "Ready", "Everything that is declared is Ready."
    NOT_READY = "NotReady", "Something that is declared is not Ready yet, or no longer."
    PAUSED = "Paused", "The annotation ebb.dev/paused holds everything back but what is already running."
    CREATE_REFUSED = "CreateRefused", "The API server refused to create a Pod; the message is its sentence."

    VALID = "Valid", "The spec can be rendered."
    VALID_WITH_WARNINGS = (
        "ValidWithWarnings",
        "The spec is rendered as it stands; the message names a field that takes a guarantee away, and which.",
    )
    INVALID = "Invalid", "The spec cannot be rendered; the message names the field and what is wrong with it."

    UP_TO_DATE = "UpToDate", "Every replica runs what the spec says now."
    ROLLING_OUT = (
        "RollingOut",
        "Replicas of an earlier spec are being replaced one after another; status.rollout names those under way.",
    )
    ROLLOUT_WAITING = (
        "RolloutWaiting",
        "Replicas of an earlier spec are left alone for now: something is not Ready, a Pod or its delete is refused, "
        "a retirement is under way, the deployment is paused or its spec invalid; the message says which.",
    )

    SETTLED = "Settled", "Nothing waits to be removed."
    RETIREMENT_RUNNING = (
        "RetirementRunning",
        "One replica is being retired; status.retirement says how far it is.",
    )
    RETIREMENT_ABORTED = (
        "RetirementAborted",
        "A retirement ended without a delete; the replica is kept and serves, and the message says why.",
    )
    NOT_SUPPORTED_YET = (
        "NotSupportedYet",
        "The message names what this release does not carry out; running replicas stay exactly as they are.",
    )
    WOULD_EMPTY_ENDPOINT = (
        "WouldEmptyEndpoint",
        "The last replica that serves behind an endpoint which is to keep capacity waits for a successor.",
    )
    ROUTER_UNSETTLED = (
        "RouterUnsettled",
        "A router Pod is leaving or the router's Deployment is rolling; the removal waits for it.",
    )
    DEPARTURE_STUCK = (
        "DepartureStuck",
        "A deleted replica is late to go; status.departing names it, and its seat stays reserved.",
    )
    SPEC_INVALID = "SpecInvalid", "Removals wait until the spec is valid again."


REASONS: dict[ConditionType, tuple[Reason, ...]] = {
    ConditionType.READY: (Reason.READY, Reason.NOT_READY, Reason.PAUSED),
    ConditionType.SPEC_VALID: (
        Reason.VALID,
        Reason.VALID_WITH_WARNINGS,
        Reason.INVALID,
        Reason.NOT_SUPPORTED_YET,
    ),
    ConditionType.ROLES_READY: (Reason.READY, Reason.NOT_READY, Reason.CREATE_REFUSED),
    ConditionType.REPLICAS_UP_TO_DATE: (
        Reason.UP_TO_DATE,
        Reason.ROLLING_OUT,
        Reason.ROLLOUT_WAITING,
    ),
    ConditionType.REMOVALS_SETTLED: (
        Reason.SETTLED,
        Reason.RETIREMENT_RUNNING,
        Reason.RETIREMENT_ABORTED,
        Reason.NOT_SUPPORTED_YET,
        Reason.WOULD_EMPTY_ENDPOINT,
        Reason.ROUTER_UNSETTLED,
        Reason.DEPARTURE_STUCK,
        Reason.SPEC_INVALID,
        Reason.PAUSED,
    ),
    ConditionType.ROUTER_READY: (Reason.READY, Reason.NOT_READY),
}
"""Which reasons a condition may carry."""
