"""Which fields turn a running Pod over: a render against the live Pod, path by path.

Only what is rendered is compared. What the API server and admission added to the live Pod (defaults, sidecars, mounts,
tolerations) is nobody's edit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from apis.v1alpha1 import labels
from controller.alignment import AMOUNTS, amounts_equal, differs

UNSET: Final = "a field that is no longer set"
"""Said when everything that is rendered is there as well, and yet the Pod is another; with what may be meant."""

_OWN: Final = frozenset({labels.POD_HASH, labels.ENDPOINT_ELIGIBLE})
"""Outside of the hash, or the hash itself."""


def changed_fields(wanted: Mapping[str, Any], live: Mapping[str, Any]) -> tuple[str, ...]:
    """Paths such as `spec.containers[main].image`, in the order of the render; never empty. Values are not told: an
    environment holds secrets."""
    found: list[str] = []
    for part in ("labels", "annotations"):
        mine, theirs = (pod["metadata"].get(part) or {} for pod in (wanted, live))
        found += [
            f"metadata.{part}[{key}]" for key in mine if key not in _OWN and mine[key] != theirs.get(key)
        ]
    found += _walk("spec", wanted["spec"], live["spec"])
    if found:
        return tuple(found)
    dropped = list(_dropped(wanted, live))
    return (f"{UNSET}, of {', '.join(dropped)}" if dropped else UNSET,)


def _walk(path: str, wanted: Any, live: Any) -> Iterator[str]:
    if isinstance(wanted, Mapping):
        theirs = live if isinstance(live, Mapping) else {}
        for key, value in wanted.items():
            # The hook is made of the grace and the listener, which are compared where they stand.
            if key != "lifecycle":
                yield from _field(f"{path}.{key}", key, value, theirs.get(key))
    elif _identified(wanted):
        theirs = {_identity(item): item for item in live or () if isinstance(item, Mapping)}
        for item in wanted:
            name = _identity(item)
            if name in theirs:
                yield from _walk(f"{path}[{name}]", item, theirs[name])
            else:
                yield f"{path}[{name}]"
    elif _of_mappings(wanted):
        if not all(any(not differs(item, other) for other in live or ()) for item in wanted):
            yield path
    elif (wanted or live) and differs(wanted, live):
        yield path


def _field(path: str, key: str, wanted: Any, live: Any) -> Iterator[str]:
    if key in AMOUNTS:
        if differs({key: wanted}, {key: live}):
            yield path
    elif key == "sizeLimit":
        if not amounts_equal(wanted, live):
            yield path
    else:
        yield from _walk(path, wanted, live)


def _dropped(wanted: Mapping[str, Any], live: Mapping[str, Any]) -> Iterator[str]:
    """What only the live Pod has where a user's own entries stand; admission may have added some of it."""
    for key in (
        "nodeSelector",
        "affinity",
        "topologySpreadConstraints",
        "runtimeClassName",
        "initContainers",
    ):
        if live["spec"].get(key) and not wanted["spec"].get(key):
            yield f"spec.{key}"
    mine, theirs = (_main(pod) for pod in (wanted, live))
    for key in ("env", "envFrom", "ports"):
        kept = {_identity(item) for item in mine.get(key) or ()}
        for item in theirs.get(key) or ():
            if _identity(item) not in kept:
                yield f"spec.containers[{labels.MAIN_CONTAINER}].{key}[{_identity(item)}]"


def _main(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    return next((c for c in pod["spec"]["containers"] if c.get("name") == labels.MAIN_CONTAINER), {})


def _of_mappings(value: Any) -> bool:
    return isinstance(value, Sequence) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _identified(value: Any) -> bool:
    return _of_mappings(value) and all(_identity(item) for item in value)


def _identity(item: Mapping[str, Any]) -> str:
    """What tells an element of a list from the others: the same volume may be mounted twice, so the path goes first."""
    return str(item.get("mountPath") or item.get("name") or "")
