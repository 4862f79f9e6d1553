"""No field of the API is removed or narrowed unnoticed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from apis.crd import model_deployment_crd
from apis.v1alpha1 import owned
from unit.apis.compatibility import crd_narrowings, schema_narrowings

GOLDEN: Final = Path(__file__).parent / "golden"

NOTICED: Final[dict[str, set[str]]] = {
    "crd_before_0.1.0": {
        # About values that the earlier CRD did not take: other engines, routers, kinds and sizes.
        ".spec.engine: rule metrics is for the engine Custom: Ebb knows where the others publish theirs",
        ".spec: rule with the engine Custom every role brings its command",
        ".spec: rule sglang-gateway serves SGLang only",
        ".spec: rule with llm-d-router withdrawSeconds is at least 25",
        ".spec: rule Server roles do not mix with Prefill and Decode roles",
        ".spec: rule at most one role is of kind Prefill, and at most one of kind Decode",
        ".spec: rule a role of several Pods per replica needs the names <role>-r0, <role>-r1, … for its Services: "
        "no other role may have one of them",
        ".spec.retirement: rule with disaggregated VerifiedRelease drainSeconds is at least 30",
        ".spec.retirement: rule ignorePeers says whose connections ObserveConnections leaves out: it needs "
        "withoutRouter ObserveConnections",
        *(f".spec.router: rule {flag.sentence}" for flag in owned.LLM_D_FLAGS),
        *(f".spec.roles[]: rule {flag.sentence}" for flag in owned.DISAGGREGATION_FLAGS),
        # Stood on the arguments before, for the one router that there was.
        *(f".spec.router: rule {flag.sentence}" for flag in owned.FORKED_FLAGS),
    }
}
"""By earlier CRD: what is narrower since, with the reason why no stored object is hurt."""


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("crd_*.yaml")), ids=lambda path: path.stem)
def test_nothing_is_narrower_unnoticed(path: Path) -> None:
    """What an earlier CRD took the present one takes too, but for what is listed here on purpose."""
    earlier = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert set(crd_narrowings(earlier, model_deployment_crd())) == NOTICED.get(path.stem, set())


OLD: Final[dict[str, Any]] = {
    "type": "object",
    "x-kubernetes-preserve-unknown-fields": True,
    "properties": {
        "a": {"type": "string", "enum": ["x", "y"]},
        "n": {"type": "integer", "minimum": 1, "maximum": 9, "default": 2},
        "l": {"type": "array", "items": {"type": "string", "maxLength": 3}},
    },
    "required": ["a"],
}


def edited(**properties: Any) -> dict[str, Any]:
    """OLD with fields in another form, or without those that are None."""
    fields = OLD["properties"] | properties
    return OLD | {"properties": {name: field for name, field in fields.items() if field is not None}}


@pytest.mark.parametrize(
    ("new", "found"),
    [
        (edited(l=None), ".l: the field is gone"),
        (edited(a={"type": "string", "enum": ["x"]}), ".a: enum ['x', 'y'] → ['x']"),
        (edited(n=OLD["properties"]["n"] | {"maximum": 8}), ".n: maximum 9 → 8"),
        (edited(n=OLD["properties"]["n"] | {"minimum": 2}), ".n: minimum 1 → 2"),
        (edited(n=OLD["properties"]["n"] | {"default": 3}), ".n: default 2 → 3"),
        (edited(n={"type": "number", "minimum": 1, "default": 2}), ".n: type integer → number"),
        (edited(l={"type": "array", "items": {"type": "string", "maxLength": 2}}), ".l[]: maxLength 3 → 2"),
        (edited(l={"type": "array", "maxItems": 1, "items": {"type": "string"}}), ".l: maxItems None → 1"),
        (OLD | {"required": ["a", "n"]}, ".n: required"),
        (OLD | {"x-kubernetes-preserve-unknown-fields": False}, ": unknown fields are dropped"),
        (OLD | {"x-kubernetes-validations": [{"rule": "r", "message": "no"}]}, ": rule no"),
    ],
)
def test_what_narrows_is_found(new: dict[str, Any], found: str) -> None:
    """Each way to take something from a user is found, with its path."""
    assert schema_narrowings(OLD, new) == [found]


@pytest.mark.parametrize(
    "new",
    [
        OLD,
        edited(b={"type": "string", "default": "x"}),
        edited(a={"type": "string", "enum": ["x", "y", "z"]}),
        edited(n={"type": "integer", "minimum": 0, "maximum": 10, "default": 2}),
        OLD | {"required": []},
    ],
)
def test_what_widens_is_let_through(new: dict[str, Any]) -> None:
    """A further field, value or range takes nothing from anybody."""
    assert schema_narrowings(OLD, new) == []
