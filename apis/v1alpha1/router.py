"""`spec.router`: what a user says about the router in front of a deployment."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from apis.v1alpha1 import owned
from apis.v1alpha1.base import ApiModel, Rule, rules
from apis.v1alpha1.kubernetes import Image, ImagePullPolicy, PullSecrets, ResourceRequirements


class RouterName(StrEnum):
    VLLM_ROUTER = "vllm-router"


class Router(ApiModel):
    """A router in front of all roles, run as a Deployment of its own."""

    name: Annotated[
        RouterName,
        Field(
            json_schema_extra=rules(
                Rule(
                    "self == oldSelf",
                    "a router is replaced by removing it first: its replacement counts from zero",
                    reason="FieldValueForbidden",
                )
            )
        ),
    ]
    """Which router. Changes only by removing `router` first."""

    image: Image
    """An image with `vllm-router` on its PATH, and `sleep`."""

    replicas: Annotated[int, Field(ge=0, le=64)] = 1
    """Router Pods. Each is asked by its own address."""

    image_pull_policy: ImagePullPolicy | None = None
    image_pull_secrets: PullSecrets | None = None

    extra_args: (
        Annotated[
            tuple[Annotated[str, Field(max_length=4096)], ...],
            Field(
                max_length=256,
                json_schema_extra=rules(
                    owned.FIRST_IS_FLAG,
                    *(flag.rule() for flag in owned.ROUTER_FLAGS),
                    Rule(
                        "self.all(a, !(a.startsWith('--') && (a.endsWith('-selector') || a.contains('-selector='))))",
                        owned.SELECTORS_REFUSED,
                        reason="FieldValueForbidden",
                    ),
                    x_kubernetes_list_type="atomic",
                ),
            ),
        ]
        | None
    ) = None
    """Appended to the router's command line."""

    resources: ResourceRequirements | None = None

    request_timeout_seconds: Annotated[int, Field(ge=1, le=604800)] | None = None
    """The longest a request may take; the router's own default unless set."""

    termination_grace_period_seconds: Annotated[int, Field(ge=10, le=86400)] = 300
    """How long a router that leaves may finish its open streams."""
