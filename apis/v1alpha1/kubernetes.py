"""The few Kubernetes types of a Pod that the API looks into; the rest is passed through as it is."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import ConfigDict, Field, WithJsonSchema

from apis.v1alpha1 import owned
from apis.v1alpha1.base import (
    PRESERVE,
    QUANTITY_SCHEMA,
    ApiModel,
    KubeObject,
    ObjectName,
    Quantity,
    Rule,
    map_list,
    rules,
)

Short = Annotated[str, Field(max_length=253)]


class ImagePullPolicy(StrEnum):
    ALWAYS = "Always"
    NEVER = "Never"
    IF_NOT_PRESENT = "IfNotPresent"


class Protocol(StrEnum):
    TCP = "TCP"
    UDP = "UDP"
    SCTP = "SCTP"


class LocalObjectReference(ApiModel):
    """An object of the same namespace."""

    name: ObjectName
    """Its name."""


class SecretKey(ApiModel):
    """A key of a Secret of the same namespace."""

    name: ObjectName
    """The Secret."""

    key: Annotated[str, Field(min_length=1, max_length=253)]
    """The key in it."""


class DisruptionBudget(ApiModel):
    """A PodDisruptionBudget."""

    max_unavailable: Annotated[
        int | str,
        WithJsonSchema(
            {
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "x-kubernetes-int-or-string": True,
                "minimum": 0,
                "pattern": r"^(100|[1-9]?[0-9])%$",
                "maxLength": 4,
            }
        ),
    ]
    """How many may be away at once: a number, or a share such as `25%`. 0 lets no eviction through."""


class ConfigMapOrSecretKey(ApiModel):
    """A key of a ConfigMap or Secret."""

    name: ObjectName
    """The ConfigMap or Secret."""

    key: Annotated[str, Field(min_length=1, max_length=253)]
    """The key in it."""

    optional: bool | None = None
    """Whether the Pod starts without it."""


class FieldRef(ApiModel):
    """A field of the Pod (downward API)."""

    api_version: Short | None = None
    """The version that the path is written in; v1 unless set."""

    field_path: Annotated[str, Field(min_length=1, max_length=1024)]
    """The path of the field, e.g. `status.podIP`."""


class ResourceFieldRef(ApiModel):
    """A resource of a container (downward API)."""

    container_name: Short | None = None
    """The container; the engine's unless set."""

    resource: Annotated[str, Field(min_length=1, max_length=253)]
    """The resource, e.g. `limits.cpu`."""

    divisor: Quantity | None = None
    """The unit that it is counted in; 1 unless set."""


class EnvVarSource(ApiModel):
    """Where the value of a variable comes from."""

    field_ref: FieldRef | None = None
    """A field of the Pod."""

    resource_field_ref: ResourceFieldRef | None = None
    """A resource of a container."""

    config_map_key_ref: ConfigMapOrSecretKey | None = None
    """A key of a ConfigMap."""

    secret_key_ref: ConfigMapOrSecretKey | None = None
    """A key of a Secret."""


class EnvVar(ApiModel):
    """An environment variable of the engine."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "!(has(self.value) && has(self.valueFrom))",
                "value and valueFrom exclude each other",
                path=".value",
            )
        )
    )

    name: Annotated[
        str,
        Field(
            min_length=1,
            max_length=253,
            pattern=r"^[ -<>-~]+$",
            json_schema_extra=rules(
                Rule(
                    f"!self.startsWith('{owned.ENV_PREFIX}')",
                    f"variables that begin with {owned.ENV_PREFIX} are set by Ebb",
                    reason="FieldValueForbidden",
                )
            ),
        ),
    ]
    """The name of the variable. Names that begin with EBB_ are Ebb's."""

    value: Annotated[str, Field(max_length=32768)] | None = None
    """Its value; `$(NAME)` stands for a variable before it."""

    value_from: EnvVarSource | None = None
    """Where its value comes from instead."""


class EnvFromReference(ApiModel):
    """A ConfigMap or Secret whose keys become variables."""

    name: ObjectName
    """The ConfigMap or Secret."""

    optional: bool | None = None
    """Whether the Pod starts without it."""


class EnvFromSource(ApiModel):
    """Variables from every key of a ConfigMap or Secret."""

    prefix: (
        Annotated[
            str,
            Field(
                max_length=253,
                json_schema_extra=rules(
                    Rule(
                        f"!self.startsWith('{owned.ENV_PREFIX}')",
                        f"variables that begin with {owned.ENV_PREFIX} are set by Ebb",
                        reason="FieldValueForbidden",
                    )
                ),
            ),
        ]
        | None
    ) = None
    """Put before every key."""

    config_map_ref: EnvFromReference | None = None
    """The ConfigMap."""

    secret_ref: EnvFromReference | None = None
    """The Secret."""


class Volume(ApiModel):
    """A volume as Kubernetes defines it; only its name is looked at."""

    model_config = ConfigDict(extra="allow", json_schema_extra={PRESERVE: True})

    name: Annotated[
        str,
        Field(
            min_length=1,
            max_length=63,
            pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
            json_schema_extra=rules(
                Rule(
                    f"!self.startsWith('{owned.VOLUME_PREFIX}')",
                    f"volumes that begin with {owned.VOLUME_PREFIX} are Ebb's",
                    reason="FieldValueForbidden",
                )
            ),
        ),
    ]
    """Unique in the role. Beside it stands one source of the volume, e.g. `persistentVolumeClaim`."""


class VolumeMount(ApiModel):
    """A mount as Kubernetes defines it; a mount on /dev/shm takes the place of Ebb's."""

    model_config = ConfigDict(extra="allow", json_schema_extra={PRESERVE: True})

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """The volume."""

    mount_path: Annotated[str, Field(min_length=1, max_length=4096)]
    """Where it appears in the container."""


class InitContainer(ApiModel):
    """An init container as Kubernetes defines it; only its name is looked at."""

    model_config = ConfigDict(extra="allow", json_schema_extra={PRESERVE: True})

    name: Annotated[
        str,
        Field(
            min_length=1,
            max_length=63,
            pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
            json_schema_extra=rules(
                Rule("self != 'main'", "the container `main` is the engine", reason="FieldValueForbidden")
            ),
        ),
    ]
    """Unique in the Pod. Beside it stand the fields of a container."""


ResourceRequirements = Annotated[
    dict[str, Any],
    WithJsonSchema(
        {
            "type": "object",
            "properties": {
                "limits": {
                    "description": "The most that the container may use, by resource.",
                    "type": "object",
                    "additionalProperties": QUANTITY_SCHEMA,
                },
                "requests": {
                    "description": "What a node must have free for the container, by resource.",
                    "type": "object",
                    "additionalProperties": QUANTITY_SCHEMA,
                },
                "claims": {
                    "description": "Resource claims of the Pod that the container uses, by name.",
                    "type": "array",
                    "maxItems": 32,
                    "items": {"type": "object", PRESERVE: True},
                },
            },
        }
    ),
]

KubeObjects = Annotated[tuple[KubeObject, ...], Field(max_length=64)]

Image = Annotated[str, Field(min_length=1, max_length=1024)]
PullSecrets = Annotated[
    tuple[LocalObjectReference, ...], Field(max_length=32, json_schema_extra=map_list("name"))
]
