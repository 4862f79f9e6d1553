"""What is wrong with a spec that the API server let through.

The CRD refuses nearly everything on its own. What is left needs to read a command line, or came in under an
older CRD. While there is a problem nothing is rendered, and running replicas stay exactly as they are.
"""

from __future__ import annotations

import ipaddress
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from apis.v1alpha1 import owned
from apis.v1alpha1.conditions import Reason
from apis.v1alpha1.engine import EngineName
from apis.v1alpha1.flags import flag_name
from apis.v1alpha1.kubernetes import Protocol
from apis.v1alpha1.model_deployment import ModelDeploymentSpec
from apis.v1alpha1.retirement import Retirement
from apis.v1alpha1.role import Role
from controller.pod_renderer import argv
from controller.pod_renderer.owner import Owner
from controller.pod_renderer.unsupported import unsupported

LONGEST_ROLE_NAME: Final = 53
"""Of `<deployment>-<role>`: Pod names add the seat and must stay within 63 characters, to be host names."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A field and what is wrong with it."""

    path: str
    reason: str
    condition_reason: Reason = Reason.INVALID
    """Of the condition SpecValid, when every problem has it."""

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def parse_spec(raw: Mapping[str, Any]) -> ModelDeploymentSpec | tuple[Problem, ...]:
    """The spec as the API server sent it (`object["spec"]`), or why it cannot be read."""
    try:
        return ModelDeploymentSpec.model_validate(raw)
    except ValidationError as error:
        found = {each["loc"]: each["msg"] for each in error.errors(include_url=False)}
        # A list whose items are wrong is also reported as too short: only the innermost places say something.
        inner = [
            place for place in found if not any(other[: len(place)] == place != other for other in found)
        ]
        return tuple(Problem(_path(place), found[place]) for place in inner)


def spec_problems(owner: Owner, spec: ModelDeploymentSpec) -> tuple[Problem, ...]:
    """Everything that keeps the spec from being rendered, in the order of its fields; empty when nothing
    does."""
    return tuple(_problems(owner, spec))


def _problems(owner: Owner, spec: ModelDeploymentSpec) -> Iterator[Problem]:
    for path, sentence in unsupported(spec):
        yield Problem(path, sentence, Reason.NOT_SUPPORTED_YET)
    names = [role.name for role in spec.roles]
    if spec.entry_role is not None and spec.entry_role not in names:
        yield Problem("spec.entryRole", f"no role is called {spec.entry_role!r}")
    if spec.router is not None:
        yield from _arguments("spec.router.extraArgs", spec.router.extra_args or (), spec.router.owned_flags)
        for index, argument in enumerate(spec.router.extra_args or ()):
            if (flag_name(argument) or "").endswith("-selector"):
                yield Problem(f"spec.router.extraArgs[{index}]", owned.SELECTORS_REFUSED)
    yield from _ignored_peers(spec.retirement)
    for index, role in enumerate(spec.roles):
        path = f"spec.roles[{index}]"
        if spec.engine.name is EngineName.CUSTOM and role.command is None:
            yield Problem(f"{path}.command", "with the engine Custom every role brings its command")
        full = owner.role_service_name(role.name)
        if len(full) > LONGEST_ROLE_NAME:
            yield Problem(
                f"{path}.name", f"{full!r} has {len(full)} characters, more than {LONGEST_ROLE_NAME}"
            )
        if role.serving_port is not None and role.serving_port not in [port.name for port in role.ports]:
            yield Problem(f"{path}.servingPort", f"{role.serving_port!r} is not one of ports")
        elif spec.router is not None:
            yield from _routed(path, role, spec)
        yield from _arguments(f"{path}.extraArgs", role.extra_args or (), role.owned_flags)
        yield from _mounts(path, role)


def _arguments(path: str, arguments: Sequence[str], flags: Sequence[owned.OwnedFlag]) -> Iterator[Problem]:
    for index, flag in owned.owned_flags(arguments, flags):
        yield Problem(f"{path}[{index}]", f"{arguments[index]!r}: {flag.sentence}")
    for index, argument in enumerate(arguments):
        before = arguments[index - 1] if index else None
        if argument == "--":
            yield Problem(f"{path}[{index}]", "`--` is refused: flags follow these arguments")
        elif not argument.startswith("-") and (before is None or _complete(before)):
            yield Problem(
                f"{path}[{index}]", f"{argument!r} belongs to no flag, so it would be read as a model"
            )


def _complete(argument: str) -> bool:
    """Whether a flag brought its value along, so that a bare word after it cannot be its value."""
    return argument.startswith("--") and "=" in argument


def _routed(path: str, role: Role, spec: ModelDeploymentSpec) -> Iterator[Problem]:
    """A router is given one port for all replicas, and speaks plain HTTP to them."""
    served = role.served
    if served.protocol is not Protocol.TCP:
        yield Problem(
            f"{path}.ports", f"behind a router the serving port is TCP, not {served.protocol.value}"
        )
    if argv.serves_tls(role):
        yield Problem(f"{path}.extraArgs", "behind a router engines serve plain HTTP, without a certificate")
    first = spec.roles[0]
    try:
        common = first.served.port
    except LookupError:
        return
    if served.port != common:
        yield Problem(
            f"{path}.ports",
            f"behind a router all roles serve on one port: {served.port} here, {common} on role {first.name}",
        )


def _ignored_peers(retirement: Retirement) -> Iterator[Problem]:
    """What has the form of a network and is none, as 300.0.0.0/8, or names a host inside one, as 10.0.0.1/8."""
    for index, peer in enumerate(retirement.ignore_peers or ()):
        try:
            ipaddress.ip_network(peer)
        except ValueError as error:
            yield Problem(f"spec.retirement.ignorePeers[{index}]", str(error))


def _mounts(path: str, role: Role) -> Iterator[Problem]:
    """Mounts of volumes that nobody declares, and of volumes under another spelling of the same path."""
    declared = {volume.name for volume in role.volumes or ()}
    seen: dict[str, int] = {}
    for index, mount in enumerate(role.volume_mounts or ()):
        where = f"{path}.volumeMounts[{index}]"
        if mount.name not in declared:
            yield Problem(f"{where}.name", f"no volume is called {mount.name!r}")
        target = posixpath.normpath(mount.mount_path)
        if target in seen:
            yield Problem(f"{where}.mountPath", f"the same place as volumeMounts[{seen[target]}]")
        seen.setdefault(target, index)


def _path(location: tuple[int | str, ...]) -> str:
    """`("roles", 0, "image")` as `spec.roles[0].image`."""
    return "spec" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
