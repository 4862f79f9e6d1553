"""From the models to the CustomResourceDefinition: `python -m apis.crd >
manifests/crd/modeldeployments.yaml`.

Pydantic writes JSON Schema; Kubernetes wants a *structural* schema: no references, no null alternatives, no
titles.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

import yaml

from apis.v1alpha1 import labels
from apis.v1alpha1.base import VALIDATIONS, Rule
from apis.v1alpha1.model_deployment import ModelDeploymentSpec
from apis.v1alpha1.role import LABEL_NAME
from apis.v1alpha1.status import ModelDeploymentStatus

LONGEST_DEPLOYMENT_NAME: Final = 56
LONGEST_ROLE_NAME: Final = 53

NAME_RULES: Final = (
    Rule(
        f"self.spec.roles.all(r, self.metadata.name.size() + 1 + r.name.size() <= {LONGEST_ROLE_NAME})",
        f"<deployment>-<role> has at most {LONGEST_ROLE_NAME} characters",
        path=".spec.roles",
    ),
)

COLUMNS: Final = (
    ("Engine", "string", ".spec.engine.name", 0),
    ("Roles", "string", ".status.roleSummary", 0),
    ("Phase", "string", ".status.phase", 0),
    ("Retiring", "string", ".status.retiring", 0),
    ("Endpoint", "string", ".status.endpoint", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Reason", "string", ".status.retirement.reason", 1),
)
"""Name, type, path, priority; priority 1 is shown by `-o wide` alone."""


def model_deployment_crd() -> dict[str, Any]:
    """The CRD as it is applied."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{labels.PLURAL}.{labels.GROUP}"},
        "spec": {
            "group": labels.GROUP,
            "names": {
                "kind": labels.KIND,
                "listKind": f"{labels.KIND}List",
                "plural": labels.PLURAL,
                "singular": labels.KIND.lower(),
                "shortNames": ["md"],
                "categories": [labels.EBB],
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": labels.VERSION,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": [
                        {"name": name, "type": kind, "jsonPath": path}
                        | ({"priority": priority} if priority else {})
                        for name, kind, path, priority in COLUMNS
                    ],
                    "schema": {"openAPIV3Schema": _root_schema()},
                    "subresources": {"status": {}},
                }
            ],
        },
    }


def _root_schema() -> dict[str, Any]:
    return {
        "description": "A model served by replicas of an engine, which leave without cutting a request.",
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {
                "description": "The version of the API that this object is written in.",
                "type": "string",
            },
            "kind": {"description": "ModelDeployment.", "type": "string"},
            # Also the name of a Service, so of narrower form than other names.
            "metadata": {
                "type": "object",
                "properties": {
                    "name": {
                        "description": "Also the name of the Service in front of the entry role.",
                        "type": "string",
                        "maxLength": LONGEST_DEPLOYMENT_NAME,
                        "pattern": LABEL_NAME,
                    }
                },
            },
            "spec": schema_of(ModelDeploymentSpec.model_json_schema()),
            "status": schema_of(ModelDeploymentStatus.model_json_schema()),
        },
        VALIDATIONS: [rule.to_schema() for rule in NAME_RULES],
    }


def schema_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON Schema document of pydantic's as one structural schema."""
    return _structural(document, document.get("$defs", {}))


def _structural(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    flat = _without_references(schema, definitions)
    result: dict[str, Any] = {}
    for key, value in flat.items():
        match key:
            case "title" | "$defs":
                continue
            case "default" if value is None:
                continue
            case "additionalProperties" if isinstance(value, bool):
                continue  # what is unknown is kept or dropped by x-kubernetes-preserve-unknown-fields
            case "const":
                result["enum"] = [value]
            case "description":
                result[key] = " ".join(value.split())
            case "properties":
                result[key] = {name: _structural(each, definitions) for name, each in value.items()}
            case "items" | "additionalProperties":
                result[key] = _structural(value, definitions)
            case _:
                result[key] = value
    return result


def _without_references(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Follow `$ref`, and take the one alternative that is not null; what stands beside them wins."""
    beside = dict(schema)
    if "$ref" in beside:
        inner = definitions[beside.pop("$ref").rpartition("/")[2]]
    elif any(option == {"type": "null"} for option in beside.get("anyOf", ())):
        (inner,) = (option for option in beside.pop("anyOf") if option != {"type": "null"})
    else:
        return beside
    merged = _without_references(inner, definitions)
    rules = [*merged.get(VALIDATIONS, ()), *beside.get(VALIDATIONS, ())]
    merged |= beside
    return merged | ({VALIDATIONS: rules} if rules else {})


class _Dumper(yaml.SafeDumper):
    """Plain YAML: no anchors, so that the file can be read and edited anywhere."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def render_crd() -> str:
    """The CRD as the YAML file that is checked in."""
    head = "# Written by `python -m apis.crd`; edit the models in apis/ instead.\n"
    return head + yaml.dump(
        model_deployment_crd(), Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True
    )


if __name__ == "__main__":
    sys.stdout.write(render_crd())
