"""`spec.router`: what a user says about the router in front of a deployment."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from apis.v1alpha1 import owned
from apis.v1alpha1.base import ApiModel, Rule, rules
from apis.v1alpha1.kubernetes import (
    DisruptionBudget,
    Image,
    ImagePullPolicy,
    PullSecrets,
    ResourceRequirements,
    SecretKey,
)


class RouterName(StrEnum):
    LLM_D_ROUTER = "llm-d-router"
    SGLANG_GATEWAY = "sglang-gateway"
    VLLM_ROUTER = "vllm-router"


class Router(ApiModel):
    """A router in front of all roles, run as a Deployment of its own."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            *(
                flag.rule(of="self.extraArgs", unless="self.name != 'llm-d-router' || !has(self.extraArgs)")
                for flag in owned.LLM_D_FLAGS
            ),
            *(
                flag.rule(of="self.extraArgs", unless="self.name == 'llm-d-router' || !has(self.extraArgs)")
                for flag in owned.FORKED_FLAGS
            ),
        )
    )

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
    """Which router. `vllm-router` serves vLLM, `sglang-gateway` SGLang. Changes only by removing `router` first.
    Only `vllm-router` is supported by this release."""

    image: Image
    """An image with the router on its PATH, and `sleep`."""

    version: (
        Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[0-9]+(\.[0-9]+)+([-+.]?\w+)*$")] | None
    ) = None
    """The version of the router in the image, e.g. `0.1.17`, which decides how a replica is withdrawn. The one that
    this release is made for unless set."""

    replicas: Annotated[int, Field(ge=0, le=64)] = 1
    """Router Pods. Each is asked by its own address."""

    image_pull_policy: ImagePullPolicy | None = None
    """When the image is pulled; Kubernetes' own default unless set."""

    image_pull_secrets: PullSecrets | None = None
    """Secrets that the image is pulled with."""

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
    """Requests and limits of the router's container."""

    request_timeout_seconds: Annotated[int, Field(ge=1, le=604800)] | None = None
    """The longest a request may take; the router's own default unless set."""

    termination_grace_period_seconds: Annotated[int, Field(ge=10, le=86400)] = 300
    """How long a router that leaves may finish its open streams."""

    api_key_secret_ref: SecretKey | None = None
    """The key that clients and the controller show to the router. Not supported by this release yet."""

    pod_disruption_budget: DisruptionBudget | None = None
    """How many router Pods an eviction, e.g. a node drain, may take away at once. Not supported by this release
    yet."""

    @property
    def owned_flags(self) -> tuple[owned.OwnedFlag, ...]:
        """The flags that are refused in `extraArgs`."""
        own = owned.LLM_D_FLAGS if self.name is RouterName.LLM_D_ROUTER else owned.FORKED_FLAGS
        return (*owned.ROUTER_FLAGS, *own)
