"""How the hook gets into a Pod: as one exec command whose arguments are all that the program needs."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

from controller.engines.gauges import accepted_names

HOOK_REVISION: Final = 1
"""Raised only when every running replica must turn over for a fix of the program: the Pod hash covers this
number and not the program's text."""


def hook_lifecycle(*, engine: str, url: str, grace_seconds: int) -> dict[str, Any]:
    """The `lifecycle` of `main`: waits out the drain window before the kubelet sends SIGTERM.

    `url` is the engine's own listener on loopback, as the scrape annotations name it; `grace_seconds` is the
    Pod's terminationGracePeriodSeconds. The command is an argv, never a shell line: the image needs `python3`
    and no more. Raises ValueError for an engine without a gauge list.
    """
    gauges = accepted_names(engine)
    if not gauges:
        raise ValueError(f"engine {engine!r} has no gauge list, so there is nothing a hook could read")
    return {
        "preStop": {"exec": {"command": ["python3", "-c", _program(), url, str(grace_seconds), *gauges]}},
    }


def hook_facts(*, engine: str, url: str, grace_seconds: int) -> dict[str, Any]:
    """What of the hook the Pod hash covers."""
    return {
        "grace": grace_seconds,
        "url": url,
        "gauges": list(accepted_names(engine)),
        "hookRevision": HOOK_REVISION,
    }


@cache
def _program() -> str:
    return Path(__file__).with_name("program.py").read_text(encoding="utf-8")
