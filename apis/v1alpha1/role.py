"""`spec.roles[]`: replicas of one shape, and what every Pod of theirs is made of.

What is left unset (None) is told apart from its default on purpose, e.g. the grace of a take-over role, which
keeps Kubernetes' own.
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
from apis.v1alpha1.kubernetes import (
    DisruptionBudget,
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

DEFAULT_GRACE_SECONDS: Final = 30
LABEL_NAME: Final = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"


class RoleKind(StrEnum):
    SERVER = "Server"
    PREFILL = "Prefill"
    DECODE = "Decode"


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
            *(
                flag.rule(of="self.extraArgs", unless="self.kind == 'Server' || !has(self.extraArgs)")
                for flag in owned.DISAGGREGATION_FLAGS
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
    """What its replicas do. `Server` answers whole requests; `Prefill` reads prompts and hands their cache to
    `Decode`, at most one role of each, not beside `Server`. Immutable per name. Only `Server` is supported by this
    release."""

    replicas: Annotated[int, Field(ge=0, le=1024)] = 1
    """How many replicas serve. Lowering it retires the highest ones, without cutting a request."""

    size: Annotated[int, Field(ge=1, le=64)] = 1
    """Pods per replica, which share one fate; the first one leads. Only 1 is supported by this release."""

    image: Image
    """The engine's image."""

    image_pull_policy: ImagePullPolicy | None = None
    """When the image is pulled; Kubernetes' own default unless set."""

    image_pull_secrets: PullSecrets | None = None
    """Secrets that the image is pulled with."""

    resources: ResourceRequirements | None = None
    """Requests and limits of the engine's container, accelerators among them."""

    node_selector: Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=64)] | None = (
        None
    )
    """Labels that a node must have."""

    tolerations: KubeObjects | None = None
    """Taints of nodes that the Pods put up with."""

    affinity: KubeObject | None = None
    """Which nodes, and which Pods beside them, the Pods want or avoid."""

    topology_spread_constraints: KubeObjects | None = None
    """How the Pods spread over zones, nodes and the like."""

    runtime_class_name: ObjectName | None = None
    """The RuntimeClass of the Pods."""

    priority_class_name: ObjectName | None = None
    """The PriorityClass of the Pods."""

    scheduler_name: ObjectName | None = None
    """The scheduler that places the Pods; the cluster's default one unless set."""

    security_context: KubeObject | None = None
    """Privileges of the engine's container."""

    pod_security_context: KubeObject | None = None
    """Privileges that the containers of a Pod share."""

    service_account_name: ObjectName | None = None
    """The ServiceAccount of the Pods. Without one, they get no API token."""

    dns_policy: Annotated[str, Field(max_length=63)] | None = None
    """How the Pods resolve names; Kubernetes' own default unless set."""

    pod_disruption_budget: DisruptionBudget | None = None
    """How many replicas an eviction, e.g. a node drain, may take away at once. Not supported by this release
    yet."""

    init_containers: (
        Annotated[tuple[InitContainer, ...], Field(max_length=16, json_schema_extra=map_list("name"))] | None
    ) = None
    """Containers that run before the engine, or beside it with `restartPolicy: Always`."""

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
    """Environment variables of the engine. Names that begin with EBB_ are Ebb's."""

    env_from: Annotated[tuple[EnvFromSource, ...], Field(max_length=64)] | None = None
    """ConfigMaps and Secrets whose keys become environment variables of the engine."""

    pod_labels: (
        Annotated[
            dict[str, Annotated[str, Field(max_length=63)]],
            Field(max_length=64, json_schema_extra=rules(owned.key_rule("labels"))),
        ]
        | None
    ) = None
    """Labels of the Pods beside Ebb's own."""

    pod_annotations: (
        Annotated[
            dict[str, Annotated[str, Field(max_length=65536)]],
            Field(max_length=64, json_schema_extra=rules(owned.key_rule("annotations"))),
        ]
        | None
    ) = None
    """Annotations of the Pods beside Ebb's own."""

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
    """What the engine listens on; each is a port of the Service too."""

    serving_port: Annotated[str, Field(min_length=1, max_length=15)] | None = None
    """The name of the port that serves; the first one unless set."""

    volumes: (
        Annotated[tuple[Volume, ...], Field(max_length=64, json_schema_extra=map_list("name"))] | None
    ) = None
    """Volumes of the Pods: claims, hostPath, configMap, secret, emptyDir and whatever else Kubernetes has."""

    volume_mounts: (
        Annotated[tuple[VolumeMount, ...], Field(max_length=64, json_schema_extra=map_list("mountPath"))]
        | None
    ) = None
    """Where the engine's container sees the volumes."""

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
    def owned_flags(self) -> tuple[owned.OwnedFlag, ...]:
        """The flags that are refused in `extraArgs`."""
        also = () if self.kind is RoleKind.SERVER else owned.DISAGGREGATION_FLAGS
        return (*owned.ENGINE_FLAGS, *also)

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
