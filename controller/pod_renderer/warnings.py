"""What a spec may say, and should not: it is rendered as it stands, and the status tells what it costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from apis.v1alpha1.engine import EngineName
from apis.v1alpha1.flags import flag_name
from apis.v1alpha1.model_deployment import ModelDeploymentSpec
from apis.v1alpha1.role import Role
from controller.pod_renderer import argv

_STATISTICS_OFF: Final = ("--disable-log-stats", "--disable-log-st")
"""vLLM: the flag, and its shortest abbreviation that stands for nothing else."""
_SHUTDOWN_TIMEOUT: Final = "--shutdown-timeout"
LAST_SECONDS: Final = 5
"""What the drain hook leaves of the grace when requests do not end (RESERVE of its program)."""


def spec_warnings(spec: ModelDeploymentSpec) -> tuple[str, ...]:
    """`path: sentence` of everything in the spec that takes a guarantee away, in the order of its fields."""
    return tuple(
        f"spec.roles[{index}].{field}: {sentence}"
        for index, role in enumerate(spec.roles)
        if role.command is None
        for field, sentence in _warnings(spec.engine.name, role)
    )


def _warnings(engine: EngineName, role: Role) -> Iterator[tuple[str, str]]:
    for index, argument in enumerate(role.extra_args or ()):
        name = flag_name(argument)
        if engine is EngineName.VLLM and name and _switches_statistics_off(name):
            yield (
                f"extraArgs[{index}]",
                f"{argument} switches off the gauges that say when a replica is idle: a deleted Pod waits "
                "its whole grace, and a removal is held until it aborts",
            )
    timeout = next((v for name, v in argv.flags(role.extra_args or ()) if name == _SHUTDOWN_TIMEOUT), None)
    if engine is EngineName.VLLM and timeout is not None and _seconds(timeout) > LAST_SECONDS:
        yield (
            "extraArgs",
            f"of {_SHUTDOWN_TIMEOUT} {timeout} at most {LAST_SECONDS} s can be used: the drain window waits for "
            f"requests before SIGTERM, and leaves the last {LAST_SECONDS} s of the grace",
        )
    if argv.moves_listener(role):
        yield (
            "extraArgs",
            "--host and --port of your own take the probes away, and the drain window may find nothing "
            "where it reads",
        )


def _switches_statistics_off(name: str) -> bool:
    flag, least = _STATISTICS_OFF
    return flag.startswith(name) and name.startswith(least)


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
