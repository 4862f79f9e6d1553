"""Bringing a live object to what is rendered, field by field: what others added stays, what is ours is restored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final

AMOUNTS: Final = frozenset({"limits", "requests"})
"""Where quantities stand, which the API server writes back in a form of its own: 1000m as 1, 1024Mi as 1Gi."""

_FACTORS: Final = {
    **{suffix: Decimal(10) ** power for suffix, power in zip("num", (-9, -6, -3), strict=True)},
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
}


def differs(desired: Any, live: Any) -> bool:
    """Whether `live` lacks anything that `desired` says.

    Mappings are compared by the keys of `desired` alone, since the API server adds defaults. Lists must have the same
    length and be equal in this sense element by element: the order of ports or rules is ours.
    """
    if isinstance(desired, Mapping):
        return not isinstance(live, Mapping) or any(
            (_amounts_differ if key in AMOUNTS else differs)(value, live.get(key))
            for key, value in desired.items()
        )
    if isinstance(desired, Sequence) and not isinstance(desired, str):
        if not isinstance(live, Sequence) or isinstance(live, str) or len(live) != len(desired):
            return True
        return any(differs(one, other) for one, other in zip(desired, live, strict=True))
    return bool(desired != live)


def patch_for(desired: Mapping[str, Any], live: Mapping[str, Any]) -> dict[str, Any] | None:
    """The JSON merge patch that aligns `live` with `desired`, None when nothing of ours differs.

    A Service's selector is ours whole: a key that somebody added to it would narrow it, so it is taken out again.
    """
    patch: dict[str, Any] = {}
    for key in ("spec", "data", "rules", "subjects", "roleRef"):
        if key in desired and differs(desired[key], live.get(key)):
            patch[key] = desired[key]
    wanted = desired.get("metadata") or {}
    present = live.get("metadata") or {}
    metadata = {
        key: wanted[key]
        for key in ("labels", "annotations", "ownerReferences")
        if key in wanted and differs(wanted[key], present.get(key))
    }
    if metadata:
        patch["metadata"] = metadata
    selector = (desired.get("spec") or {}).get("selector")
    if desired.get("kind") == "Service" and selector is not None:
        extra = set(((live.get("spec") or {}).get("selector")) or {}) - set(selector)
        if extra:
            spec = patch.setdefault("spec", {})
            spec["selector"] = {**selector, **dict.fromkeys(extra)}
    return patch or None


def amounts_equal(one: object, other: object) -> bool:
    """Whether two quantities are worth the same, however they are written."""
    return _amount(one) == _amount(other)


def _amounts_differ(desired: Any, live: Any) -> bool:
    if not isinstance(desired, Mapping) or not isinstance(live, Mapping):
        return differs(desired, live)
    return any(not amounts_equal(value, live.get(key)) for key, value in desired.items())


def _amount(quantity: object) -> object:
    """The value of a Kubernetes quantity; whatever is none stands for itself."""
    text = str(quantity)
    for length in (2, 1):
        factor = _FACTORS.get(text[-length:])
        if factor is not None:
            break
    number = text if factor is None else text[:-length]
    try:
        return Decimal(number) * (factor or 1)
    except InvalidOperation:
        return quantity
