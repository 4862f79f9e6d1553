"""What every API model shares: spelling, immutability, tolerance for newer fields, CEL rules beside the fields.

The models are the source of the CRD. A rule that the API server enforces stands next to the field that it
guards, so that the schema, the rule and the sentence a user reads cannot drift apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
VALIDATIONS: Final = "x-kubernetes-validations"


class ApiModel(BaseModel):
    """A part of the API: camelCase outside, snake_case inside, immutable. Unknown fields are ignored."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        extra="ignore",
        use_attribute_docstrings=True,
    )


@dataclass(frozen=True, slots=True)
class Rule:
    """One CEL rule. `path` is relative to where the rule stands, "" for that very place."""

    expression: str
    message: str
    path: str = ""
    reason: Literal["FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired"] = "FieldValueInvalid"

    def to_schema(self) -> dict[str, str]:
        schema = {"rule": self.expression, "message": self.message, "reason": self.reason}
        return schema | ({"fieldPath": self.path} if self.path else {})


def rules(*entries: Rule, **schema: Any) -> dict[str, Any]:
    """`json_schema_extra` with these rules; further keywords are schema keywords to add, with `_` for `-`."""
    return {
        VALIDATIONS: [entry.to_schema() for entry in entries],
        **{name.replace("_", "-"): value for name, value in schema.items()},
    }


def immutable(what: str) -> Rule:
    return Rule("self == oldSelf", f"{what} is immutable", reason="FieldValueForbidden")


def map_list(*keys: str) -> dict[str, Any]:
    """Schema keywords of a list that is a map: unique by these keys, merged by them in server-side apply."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


KubeObject = Annotated[dict[str, Any], WithJsonSchema({"type": "object", PRESERVE: True})]
"""A Kubernetes object passed through as it is; the API server checks it when the Pod is created."""

QUANTITY_PATTERN: Final = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
QUANTITY_SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
    "pattern": QUANTITY_PATTERN,
    "maxLength": 64,
}
Quantity = Annotated[int | str, WithJsonSchema(QUANTITY_SCHEMA)]

Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
"""RFC 3339, kept as the string that was written: microseconds survive."""

ObjectName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=253,
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
    ),
]
"""The name of another object (DNS-1123 subdomain)."""
