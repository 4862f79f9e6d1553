"""The spec of a `ModelDeployment`: what a user asks for.

Bounds and rules are part of the models; `apis.crd` turns them into the CRD. A default that is written here is
also set by the API server. What is left unset (None) is told apart from its default on purpose, e.g. the
grace of a take-over role, which keeps Kubernetes' own.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import ConfigDict, Field

from apis.v1alpha1 import owned
from apis.v1alpha1.base import (
    ApiModel,
    KubeObject,
    ObjectName,
    Quantity,
    Rule,
    immutable,
    map_list,
    rules,
)
from apis.v1alpha1.flags import cel_is_tls_flag
from apis.v1alpha1.kubernetes import (
    EnvFromSource,
    EnvVar,
    Image,
    ImagePullPolicy,
    InitContainer,
    KubeObjects,
    Protocol,
    PullSecrets,
    ResourceRequirements,
    Volume,
    VolumeMount,
)
from apis.v1alpha1.router import Router

DEFAULT_GRACE_SECONDS: Final = 30
LABEL_NAME: Final = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"


class EngineName(StrEnum):
    VLLM = "vLLM"
    SGLANG = "SGLang"


class RoleKind(StrEnum):
    SERVER = "Server"


class WithoutRouter(StrEnum):
    HOLD = "Hold"


class Model(ApiModel):
    """What is served."""

    name: Annotated[
        str,
        Field(
            min_length=1,
            max_length=253,
            pattern=r"^[^-\s]\S*$",
            json_schema_extra=rules(immutable("the served name")),
        ),
    ]
    """The served name, as clients send it in `model`. Immutable."""

    path: Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^-]")] | None = None
    """What the engine is given: a folder or a repository. The served name unless set."""


class Engine(ApiModel):
    """Which engine serves, and so how its command line, probes and gauges look."""

    name: Annotated[EngineName, Field(json_schema_extra=rules(immutable("the engine")))]
    """The engine of every role. Immutable."""


class Port(ApiModel):
    """A port that the engine listens on."""

    name: Annotated[
        str,
        Field(
            min_length=1,
            max_length=15,
            pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
            json_schema_extra=rules(
                Rule("self.matches('[a-z]')", "a port name needs a letter"),
                Rule("!self.contains('--')", "a port name must not have two hyphens in a row"),
            ),
        ),
    ]
    """Unique in the role; the Service's port has the same name."""

    port: Annotated[int, Field(ge=1, le=65535)]
    """The port number, of the container and of the Service."""

    protocol: Protocol = Protocol.TCP
    """Readiness, withdrawal and routers need TCP."""


DEFAULT_PORTS: Final = (Port(name="http", port=8000),)


class Retirement(ApiModel):
    """How a replica that the spec takes away leaves. Copied into the operation when it is admitted."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "self.totalSeconds >= self.withdrawSeconds + self.drainSeconds + self.settleSeconds",
                "totalSeconds must be at least withdrawSeconds + drainSeconds + settleSeconds",
                path=".totalSeconds",
            )
        )
    )

    without_router: WithoutRouter = WithoutRouter.HOLD
    """Without a router, connections through the Service cannot be seen: `Hold` keeps the replica."""

    withdraw_seconds: Annotated[int, Field(ge=12, le=3600)] = 30
    """From admission until the replica is known to be selected no more."""

    drain_seconds: Annotated[int, Field(ge=10, le=3600)] = 240
    """For the requests in flight."""

    settle_seconds: Annotated[int, Field(ge=5, le=3600)] = 30
    """For the capacity to be given back."""

    total_seconds: Annotated[int, Field(ge=27, le=14400)] = 300
    """For the whole operation; at least the sum of the three."""


class Role(ApiModel):
    """Replicas of one shape."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "!has(self.servingPort) || self.ports.exists(p, p.name == self.servingPort)",
                "servingPort must name one of ports",
                path=".servingPort",
            ),
            Rule(
                "!has(self.command) || !has(self.extraArgs) || self.extraArgs.size() == 0",
                "command is the whole argv of a take-over role: put the arguments there",
                path=".extraArgs",
                reason="FieldValueForbidden",
            ),
        )
    )

    name: Annotated[
        str,
        Field(
            min_length=1,
            max_length=63,
            pattern=LABEL_NAME,
            json_schema_extra=rules(
                Rule(
                    "self != 'router'",
                    "the name `router` is reserved for the router",
                    reason="FieldValueForbidden",
                )
            ),
        ),
    ]
    """Unique; `<deployment>-<role>` has at most 53 characters. A renamed role is a dropped and an added one."""

    kind: Annotated[RoleKind, Field(json_schema_extra=rules(immutable("the kind of a role")))] = (
        RoleKind.SERVER
    )
    """What its replicas do. Immutable per name."""

    replicas: Annotated[int, Field(ge=0, le=1024)] = 1

    size: Annotated[int, Field(ge=1, le=1)] = 1
    """Pods per replica, one fate. This release serves replicas of one Pod."""

    image: Image
    image_pull_policy: ImagePullPolicy | None = None
    image_pull_secrets: PullSecrets | None = None

    resources: ResourceRequirements | None = None
    node_selector: Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=64)] | None = (
        None
    )
    tolerations: KubeObjects | None = None
    affinity: KubeObject | None = None
    topology_spread_constraints: KubeObjects | None = None
    runtime_class_name: ObjectName | None = None
    priority_class_name: ObjectName | None = None
    scheduler_name: ObjectName | None = None
    security_context: KubeObject | None = None
    """Of the engine's container."""
    pod_security_context: KubeObject | None = None
    service_account_name: ObjectName | None = None
    """Without one, the Pod gets no API token."""
    dns_policy: Annotated[str, Field(max_length=63)] | None = None
    init_containers: (
        Annotated[tuple[InitContainer, ...], Field(max_length=16, json_schema_extra=map_list("name"))] | None
    ) = None

    command: (
        Annotated[
            tuple[Annotated[str, Field(max_length=65536)], ...],
            Field(min_length=1, max_length=512, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
        ]
        | None
    ) = None
    """Take-over: the whole argv. Ebb then adds no flag, probe, drain hook or scrape annotation, and holds a
    removal."""

    extra_args: (
        Annotated[
            tuple[Annotated[str, Field(max_length=4096)], ...],
            Field(
                max_length=256,
                json_schema_extra=rules(
                    owned.FIRST_IS_FLAG,
                    *(flag.rule() for flag in owned.ENGINE_FLAGS),
                    x_kubernetes_list_type="atomic",
                ),
            ),
        ]
        | None
    ) = None
    """Appended after Ebb's own arguments. `--host` and `--port` are yours; passing one withdraws the probes."""

    env: Annotated[tuple[EnvVar, ...], Field(max_length=256, json_schema_extra=map_list("name"))] | None = (
        None
    )
    env_from: Annotated[tuple[EnvFromSource, ...], Field(max_length=64)] | None = None

    pod_labels: (
        Annotated[
            dict[str, Annotated[str, Field(max_length=63)]],
            Field(max_length=64, json_schema_extra=rules(owned.key_rule("labels"))),
        ]
        | None
    ) = None
    pod_annotations: (
        Annotated[
            dict[str, Annotated[str, Field(max_length=65536)]],
            Field(max_length=64, json_schema_extra=rules(owned.key_rule("annotations"))),
        ]
        | None
    ) = None

    ports: Annotated[
        tuple[Port, ...],
        Field(
            min_length=1,
            max_length=16,
            json_schema_extra=rules(
                Rule(
                    "self.all(p, self.exists_one(q, q.port == p.port && q.protocol == p.protocol))",
                    "a port number may be listed once per protocol",
                ),
                default=[{"name": "http", "port": 8000, "protocol": "TCP"}],
                **map_list("name"),
            ),
        ),
    ] = DEFAULT_PORTS
    serving_port: Annotated[str, Field(min_length=1, max_length=15)] | None = None
    """The name of the port that serves; the first one unless set."""

    volumes: (
        Annotated[tuple[Volume, ...], Field(max_length=64, json_schema_extra=map_list("name"))] | None
    ) = None
    volume_mounts: (
        Annotated[tuple[VolumeMount, ...], Field(max_length=64, json_schema_extra=map_list("mountPath"))]
        | None
    ) = None
    shm_size: Quantity = "16Gi"
    """Size of the memory volume on /dev/shm; not used when a mount of yours is there."""

    termination_grace_period_seconds: Annotated[int, Field(ge=15, le=3600)] | None = None
    """The drain window of a deleted Pod. 30 unless set; a take-over role then keeps Kubernetes' own default."""

    startup_seconds: Annotated[int, Field(ge=60, le=14400)] = 1800
    """How long a start may take per attempt."""

    liveness_seconds: Annotated[int, Field(ge=30, le=3600)] = 60
    """How long an engine that does not answer is tolerated."""

    @property
    def is_takeover(self) -> bool:
        """Whether the user brings the whole command line, so that nothing is known about what runs."""
        return self.command is not None

    @property
    def served(self) -> Port:
        """The port that serves. Raises LookupError when `servingPort` names none (the API server refuses
        that)."""
        if self.serving_port is None:
            return self.ports[0]
        for port in self.ports:
            if port.name == self.serving_port:
                return port
        raise LookupError(f"servingPort {self.serving_port!r} is not one of ports")


def _cel_served(role: str) -> str:
    """CEL: the serving port of a role, as a list of one; of none where `servingPort` names none."""
    return f"{role}.ports.filter(p, has({role}.servingPort) ? p.name == {role}.servingPort : p == {role}.ports[0])"


class ModelDeploymentSpec(ApiModel):
    """One served model: its engine, its roles, and the router in front of them."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "self.roles.filter(r, r.kind == 'Server').size() <= 1 || has(self.entryRole)",
                "entryRole is required with several Server roles",
                path=".entryRole",
                reason="FieldValueRequired",
            ),
            Rule(
                "!has(self.entryRole) || self.roles.exists(r, r.name == self.entryRole)",
                "entryRole must name one of roles",
                path=".entryRole",
            ),
            Rule(
                "!has(self.router) || self.router.name != 'vllm-router' || self.engine.name == 'vLLM'",
                "vllm-router serves vLLM only",
                path=".router.name",
            ),
            Rule(
                f"!has(self.router) || self.roles.all(r, {_cel_served('r')}.all(p, p.protocol == 'TCP'))",
                "behind a router the serving port is TCP",
                path=".roles",
            ),
            Rule(
                f"!has(self.router) || self.roles.all(r, {_cel_served('r')}.map(p, p.port) == "
                f"{_cel_served('self.roles[0]')}.map(p, p.port))",
                "behind a router all roles serve on one port",
                path=".roles",
            ),
            Rule(
                "!has(self.router) || self.roles.all(r, !has(r.extraArgs) || "
                f"!r.extraArgs.exists(a, {cel_is_tls_flag()}))",
                "behind a router engines serve plain HTTP, without a certificate",
                path=".roles",
            ),
        )
    )

    model: Model
    engine: Engine
    entry_role: Annotated[str, Field(min_length=1, max_length=63)] | None = None
    """The role behind the Service `<deployment>`. Required with several Server roles."""

    router: Router | None = None
    """May be added and removed."""

    retirement: Annotated[
        Retirement, Field(json_schema_extra={"default": Retirement().model_dump(mode="json", by_alias=True)})
    ] = Retirement()

    roles: Annotated[tuple[Role, ...], Field(min_length=1, max_length=10, json_schema_extra=map_list("name"))]
    """Roles may be added, dropped and renamed."""

    @property
    def model_path(self) -> str:
        return self.model.path or self.model.name

    @property
    def entry(self) -> Role:
        """The role behind `<deployment>`. Raises LookupError when `entryRole` names none."""
        return self.roles[0] if self.entry_role is None else self.role(self.entry_role)

    def role(self, name: str) -> Role:
        """The role of that name; LookupError when there is none."""
        for role in self.roles:
            if role.name == name:
                return role
        raise LookupError(f"no role {name!r}")
