"""`spec.engine`: what runs in the replicas, and for an engine of the user's own how its requests are counted."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from apis.v1alpha1.base import ApiModel, Rule, immutable, rules


class EngineName(StrEnum):
    VLLM = "vLLM"
    SGLANG = "SGLang"
    CUSTOM = "Custom"


class Scheme(StrEnum):
    HTTP = "HTTP"
    HTTPS = "HTTPS"


class EngineMetrics(ApiModel):
    """Where an engine of your own publishes its figures, and which of them count requests."""

    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """The port of the metrics listener. The serving port unless set."""

    path: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^/\S*$")] = "/metrics"
    """The path that answers in the Prometheus text format."""

    scheme: Scheme = Scheme.HTTP
    """Certificates are not verified: the engine is read over its own loopback."""

    in_flight: (
        Annotated[
            tuple[
                Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-zA-Z_:][a-zA-Z0-9_:]*$")],
                ...,
            ],
            Field(min_length=1, max_length=16, json_schema_extra={"x-kubernetes-list-type": "set"}),
        ]
        | None
    ) = None
    """Gauges whose sum is the number of requests that the engine holds, running and waiting. Without one
    nothing can tell when a replica is idle, and its removal is refused."""

    hook: bool = True
    """Whether a deleted Pod waits for these gauges to read zero before it is stopped; needs `python3` in the
    image."""


class Engine(ApiModel):
    """Which engine serves, and so how its command line, probes and gauges look."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "self.name == 'Custom' || !has(self.metrics)",
                "metrics is for the engine Custom: Ebb knows where the others publish theirs",
                path=".metrics",
                reason="FieldValueForbidden",
            )
        )
    )

    name: Annotated[EngineName, Field(json_schema_extra=rules(immutable("the engine")))]
    """The engine of every role. Immutable. `Custom` is one that Ebb does not know: every role brings its
    `command`. `Custom` is not supported by this release yet."""

    metrics: EngineMetrics | None = None
    """Where a `Custom` engine publishes its figures."""
