"""`spec.retirement`: how a replica that the spec takes away leaves."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import ConfigDict, Field

from apis.v1alpha1.base import ApiModel, Rule, rules

DEFAULT_METRICS_BYTES: Final = 1 << 20
LEAST_VERIFIED_DRAIN_SECONDS: Final = 30


class WithoutRouter(StrEnum):
    HOLD = "Hold"
    OBSERVE_CONNECTIONS = "ObserveConnections"


class Disaggregated(StrEnum):
    REFUSE = "Refuse"
    VERIFIED_RELEASE = "VerifiedRelease"


class Retry(StrEnum):
    NEVER = "Never"
    BACKOFF = "Backoff"


class Retirement(ApiModel):
    """How a replica that the spec takes away leaves. Copied into the operation when it is admitted."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "self.totalSeconds >= self.withdrawSeconds + self.drainSeconds + self.settleSeconds",
                "totalSeconds must be at least withdrawSeconds + drainSeconds + settleSeconds",
                path=".totalSeconds",
            ),
            Rule(
                f"self.disaggregated != 'VerifiedRelease' || self.drainSeconds >= {LEAST_VERIFIED_DRAIN_SECONDS}",
                f"with disaggregated VerifiedRelease drainSeconds is at least {LEAST_VERIFIED_DRAIN_SECONDS}",
                path=".drainSeconds",
            ),
            Rule(
                "!has(self.ignorePeers) || self.withoutRouter == 'ObserveConnections'",
                "ignorePeers says whose connections ObserveConnections leaves out: it needs withoutRouter "
                "ObserveConnections",
                path=".ignorePeers",
                reason="FieldValueForbidden",
            ),
        )
    )

    without_router: WithoutRouter = WithoutRouter.HOLD
    """What stands for a router's evidence where there is none. Connections through a Service cannot be seen from
    outside, so `Hold` keeps the replica; `ObserveConnections` reads the sockets of the replica itself, and is not
    supported by this release yet."""

    ignore_peers: (
        Annotated[
            tuple[
                Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[0-9a-fA-F.:]+/[0-9]{1,3}$")],
                ...,
            ],
            Field(min_length=1, max_length=32, json_schema_extra={"x-kubernetes-list-type": "set"}),
        ]
        | None
    ) = None
    """Networks (CIDR) whose connections `ObserveConnections` does not count, for scrapers that keep one open."""

    disaggregated: Disaggregated = Disaggregated.REFUSE
    """A prefill engine can hold a finished prompt's cache that a decoder has yet to fetch, which no gauge shows.
    `Refuse` keeps such replicas; `VerifiedRelease` proves the release, and is not supported by this release yet."""

    withdraw_seconds: Annotated[int, Field(ge=12, le=3600)] = 30
    """From admission until the replica is known to be selected no more; at least 25 with `llm-d-router`."""

    drain_seconds: Annotated[int, Field(ge=10, le=3600)] = 240
    """For the requests in flight; at least 30 with `VerifiedRelease`."""

    settle_seconds: Annotated[int, Field(ge=5, le=3600)] = 30
    """For the capacity to be given back."""

    total_seconds: Annotated[int, Field(ge=27, le=14400)] = 300
    """For the whole operation; at least the sum of the three."""

    max_metrics_bytes: Annotated[int, Field(ge=DEFAULT_METRICS_BYTES, le=16 << 20)] = DEFAULT_METRICS_BYTES
    """The longest answer of an engine's metrics listener that is read; a longer one counts as unknown. Only the
    default, 1 MiB, is supported by this release."""

    retry: Retry = Retry.NEVER
    """What follows an operation that ended without a delete. `Never` waits for an edit or for the annotation
    `ebb.dev/retirement-retry`; `Backoff` tries again after 5 minutes and up to an hour, and is not supported by this
    release yet."""
