"""What an object that an earlier CRD took could lose or be refused under a later one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from apis.v1alpha1.base import PRESERVE, VALIDATIONS

Schema = Mapping[str, Any]

LOWER: Final = ("minimum", "minLength", "minItems", "minProperties")
UPPER: Final = ("maximum", "maxLength", "maxItems", "maxProperties")
SAME: Final = (
    "type",
    "format",
    "pattern",
    "anyOf",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
)
"""Keywords where any change can refuse, reorder or reinterpret what is stored."""


def crd_narrowings(old: Schema, new: Schema) -> list[str]:
    """Of a whole CRD: each as `<path>: <what became narrower>`."""
    found = [
        f"{key}: {old['spec'][key]} → {new['spec'][key]}"
        for key in ("group", "scope", "names")
        if old["spec"][key] != new["spec"][key]
    ]
    versions = {version["name"]: version for version in new["spec"]["versions"]}
    for version in old["spec"]["versions"]:
        later = versions.get(version["name"])
        if later is None or not later["served"]:
            found.append(f"{version['name']}: no longer served")
            continue
        if set(version["subresources"]) - set(later["subresources"]):
            found.append(f"{version['name']}: a subresource is gone")
        schemas = (each["schema"]["openAPIV3Schema"] for each in (version, later))
        found += schema_narrowings(*schemas)
    return found


def schema_narrowings(old: Schema, new: Schema, path: str = "") -> list[str]:
    """Of one structural schema, in the order of its fields."""
    return [f"{where}: {what}" for where, what in _narrowings(old, new, path)]


def _narrowings(old: Schema, new: Schema, path: str) -> Iterator[tuple[str, str]]:
    for key in SAME:
        if old.get(key) != new.get(key):
            yield path, f"{key} {old.get(key)} → {new.get(key)}"
    if "default" in old and not _keeps_default(old["default"], new.get("default")):
        yield path, f"default {old['default']} → {new.get('default')}"
    for key in LOWER:
        if key in new and new[key] > old.get(key, float("-inf")):
            yield path, f"{key} {old.get(key)} → {new[key]}"
    for key in UPPER:
        if key in new and new[key] < old.get(key, float("inf")):
            yield path, f"{key} {old.get(key)} → {new[key]}"
    if "enum" in new and ("enum" not in old or set(old["enum"]) - set(new["enum"])):
        yield path, f"enum {old.get('enum')} → {new['enum']}"
    if old.get(PRESERVE) and not new.get(PRESERVE):
        yield path, "unknown fields are dropped"
    known = {rule["rule"] for rule in old.get(VALIDATIONS, ())}
    for rule in new.get(VALIDATIONS, ()):
        if rule["rule"] not in known:
            yield path, f"rule {rule['message']}"
    yield from _fields(old, new, path)
    for key in ("items", "additionalProperties"):
        if key in old and key in new:
            yield from _narrowings(old[key], new[key], f"{path}[]")
        elif key in old:
            yield path, f"{key} is gone"


def _keeps_default(old: Any, new: Any) -> bool:
    """Whether an object that left the field out means what it meant; fields that are new may have defaults too."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old.items() <= new.items()
    return bool(old == new)


def _fields(old: Schema, new: Schema, path: str) -> Iterator[tuple[str, str]]:
    before, after = old.get("properties", {}), new.get("properties", {})
    for name, field in before.items():
        if name in after:
            yield from _narrowings(field, after[name], f"{path}.{name}")
        else:
            yield f"{path}.{name}", "the field is gone"
    for name in new.get("required", ()):
        if name not in old.get("required", ()):
            yield f"{path}.{name}", "required"
