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


class ConfigMapOrSecretKey(ApiModel):
    """A key of a ConfigMap or Secret."""

    name: ObjectName
    key: Annotated[str, Field(min_length=1, max_length=253)]
    optional: bool | None = None


class FieldRef(ApiModel):
    """A field of the Pod (downward API)."""

    api_version: Short | None = None
    field_path: Annotated[str, Field(min_length=1, max_length=1024)]


class ResourceFieldRef(ApiModel):
    """A resource of a container (downward API)."""

    container_name: Short | None = None
    resource: Annotated[str, Field(min_length=1, max_length=253)]
    divisor: Quantity | None = None


class EnvVarSource(ApiModel):
    """Where the value of a variable comes from."""

    field_ref: FieldRef | None = None
    resource_field_ref: ResourceFieldRef | None = None
    config_map_key_ref: ConfigMapOrSecretKey | None = None
    secret_key_ref: ConfigMapOrSecretKey | None = None


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
    value: Annotated[str, Field(max_length=32768)] | None = None
    value_from: EnvVarSource | None = None


class EnvFromReference(ApiModel):
    """A ConfigMap or Secret whose keys become variables."""

    name: ObjectName
    optional: bool | None = None


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
    config_map_ref: EnvFromReference | None = None
    secret_ref: EnvFromReference | None = None


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


class VolumeMount(ApiModel):
    """A mount as Kubernetes defines it; a mount on /dev/shm takes the place of Ebb's."""

    model_config = ConfigDict(extra="allow", json_schema_extra={PRESERVE: True})

    name: Annotated[str, Field(min_length=1, max_length=63)]
    mount_path: Annotated[str, Field(min_length=1, max_length=4096)]


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


ResourceRequirements = Annotated[
    dict[str, Any],
    WithJsonSchema(
        {
            "type": "object",
            "properties": {
                "limits": {"type": "object", "additionalProperties": QUANTITY_SCHEMA},
                "requests": {"type": "object", "additionalProperties": QUANTITY_SCHEMA},
                "claims": {
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
