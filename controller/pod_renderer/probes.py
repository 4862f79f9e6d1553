"""Probes of the engine: on GET /health, where the Service sends requests, or none at all."""

from __future__ import annotations

from typing import Any, Final

from apis.v1alpha1.kubernetes import Protocol
from apis.v1alpha1.role import Role
from controller.pod_renderer import argv

PERIOD_SECONDS: Final = 10
TIMEOUT_SECONDS: Final = 3
READINESS_FAILURES: Final = 3


def engine_probes(role: Role) -> dict[str, Any]:
    """The probe fields of `main`.

    Empty where a probe could only be wrong and would restart a healthy engine: a command of the user's, a
    listener that the user moved, a client certificate that the kubelet does not have, a port that is not TCP.
    """
    if (
        role.is_takeover
        or argv.moves_listener(role)
        or argv.demands_client_certificate(role)
        or role.served.protocol is not Protocol.TCP
    ):
        return {}
    return {
        "startupProbe": _probe(role, failures=_periods(role.startup_seconds)),
        "readinessProbe": _probe(role, failures=READINESS_FAILURES),
        "livenessProbe": _probe(role, failures=_periods(role.liveness_seconds)),
    }


def _probe(role: Role, *, failures: int) -> dict[str, Any]:
    where = argv.listener(role)
    return {
        "httpGet": {"path": "/health", "port": where.port, "scheme": where.scheme.upper()},
        "periodSeconds": PERIOD_SECONDS,
        "timeoutSeconds": TIMEOUT_SECONDS,
        "failureThreshold": failures,
    }


def _periods(seconds: int) -> int:
    """As many periods as cover the time, never fewer."""
    return -(-seconds // PERIOD_SECONDS)
