"""The generated CRD: agrees with the file that is checked in, and has the shape that Kubernetes demands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from apis.crd import model_deployment_crd, render_crd, schema_of
from apis.v1alpha1.base import PRESERVE

ROOT: Final = Path(__file__).parents[2]
FILE: Final = ROOT / "manifests" / "crd" / "modeldeployments.yaml"


def version() -> dict[str, Any]:
    (only,) = model_deployment_crd()["spec"]["versions"]
    assert isinstance(only, dict)
    return only


def schema() -> dict[str, Any]:
    root = version()["schema"]["openAPIV3Schema"]
    assert isinstance(root, dict)
    return root


def nodes(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema inside a schema, with its path."""
    yield path, node
    for name, inner in node.get("properties", {}).items():
        yield from nodes(inner, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in node:
            yield from nodes(node[key], f"{path}[]")


def test_the_file_is_what_the_models_say() -> None:
    """manifests/crd is written from the models; `make crd` writes it anew."""
    assert FILE.read_text(encoding="utf-8") == render_crd()


def test_the_schema_is_structural() -> None:
    """No reference, title, null or bare alternative is left, and every node but int-or-string has a type."""
    allowed = {
        "type", "description", "properties", "required", "items", "additionalProperties", "default", "enum",
        "format", "minimum", "maximum", "minLength", "maxLength", "pattern", "minItems", "maxItems",
        "maxProperties",
    }  # fmt: skip
    for path, node in nodes(schema()):
        if "x-kubernetes-int-or-string" in node:
            continue
        unknown = {key for key in node if key not in allowed and not key.startswith("x-kubernetes-")}
        assert not unknown, path
        assert "type" in node, path
        assert not ("properties" in node and "additionalProperties" in node), path


def test_what_a_user_writes_is_bounded() -> None:
    """Every list, map and string of the spec that the schema knows has an upper bound, which CEL's cost needs."""
    bounds = {"array": "maxItems", "string": "maxLength"}
    for path, node in nodes(schema()["properties"]["spec"]):
        bound = bounds.get(node.get("type", ""))
        if bound and "enum" not in node:
            assert bound in node, path


def test_every_object_of_the_status_keeps_unknown_fields() -> None:
    """What a newer controller wrote survives an older CRD; a condition is metav1's and fixed."""
    for path, node in nodes(schema()["properties"]["status"]):
        if "properties" in node and not path.startswith(".conditions"):
            assert node.get(PRESERVE) is True, path


def test_every_field_is_explained() -> None:
    """`kubectl explain` says a sentence about every field of the spec and the status."""
    for path, node in nodes(schema()):
        for name, field in node.get("properties", {}).items():
            where = f"{path}.{name}"
            if where != ".metadata":  # the API server describes it itself, and forbids to
                assert re.fullmatch(r"[A-Z`].*\.", field.get("description", "")), where


def test_nothing_in_the_status_has_a_default() -> None:
    """A default would have the server change what the controller wrote, and the controller write it again."""
    assert [path for path, node in nodes(schema()["properties"]["status"]) if "default" in node] == []


def test_names_and_columns() -> None:
    """`kubectl get md` and `kubectl get ebb` work, and show how far a retirement is."""
    names = model_deployment_crd()["spec"]["names"]
    assert names["shortNames"] == ["md"]
    assert names["categories"] == ["ebb"]
    columns = version()["additionalPrinterColumns"]
    shown = [column["name"] for column in columns if not column.get("priority")]
    assert shown == ["Engine", "Roles", "Phase", "Retiring", "Endpoint", "Age"]
    assert [column["name"] for column in columns if column.get("priority")] == ["Reason"]
    for column in columns:
        assert_path_exists(column["jsonPath"])


def assert_path_exists(path: str) -> None:
    known = {found for found, _ in nodes(schema())}
    assert path in known or path == ".metadata.creationTimestamp"


def test_field_paths_of_rules_exist() -> None:
    """A rule that names a field of its own names one that is there."""
    for path, node in nodes(schema()):
        for rule in node.get("x-kubernetes-validations", ()):
            target = rule.get("fieldPath", "")
            assert not target or any(found == f"{path}{target}" for found, _ in nodes(schema())), rule


@pytest.mark.parametrize(
    ("document", "structural"),
    [
        ({"type": "object", "title": "T", "$defs": {}}, {"type": "object"}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}, {"type": "string"}),
        (
            {
                "$ref": "#/$defs/A",
                "description": "outer",
                "$defs": {"A": {"type": "object", "description": "inner"}},
            },
            {"type": "object", "description": "outer"},
        ),
        ({"const": "Hold", "type": "string"}, {"enum": ["Hold"], "type": "string"}),
        ({"type": "object", "additionalProperties": True}, {"type": "object"}),
        ({"type": "string", "description": "two\n  lines"}, {"type": "string", "description": "two lines"}),
        (
            {
                "$ref": "#/$defs/A",
                "x-kubernetes-validations": [{"rule": "b"}],
                "$defs": {"A": {"type": "string", "x-kubernetes-validations": [{"rule": "a"}]}},
            },
            {"type": "string", "x-kubernetes-validations": [{"rule": "a"}, {"rule": "b"}]},
        ),
    ],
)
def test_schema_of(document: dict[str, Any], structural: dict[str, Any]) -> None:
    """pydantic's JSON Schema becomes a structural one."""
    assert schema_of(document) == structural
