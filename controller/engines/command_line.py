"""What the command line that runs in a Pod says about how its engine shares work with others.

A prefill or decode engine, and one of several ranks behind an outside load balancer, may be handed work that its own
gauges do not show yet; a reading of zero proves nothing there. Recognition therefore fails closed: what cannot be read
is not taken for an ordinary server.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any, Final

from apis.v1alpha1.flags import flag_name

Resolve = Callable[[str], str | None]
"""The value of a downward API field path of the Pod, None when it is not known."""


class Kind(StrEnum):
    SERVER = "server"
    DISAGGREGATED = "disaggregated"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a command line says. `flag` and `reason` are empty for a server."""

    kind: Kind
    flag: str = ""
    reason: str = ""
    ranks: int = 1
    """Data-parallel ranks that the command declares: each publishes every gauge with a label set of its own."""


class _UnreadableError(Exception):
    pass


_RANKED: Final[Mapping[str, str]] = {
    "-dpn": "--data-parallel-rank",
    "-dpe": "--data-parallel-external-lb",
    "-dph": "--data-parallel-hybrid-lb",
    "-dpm": "--data-parallel-multi-port-external-lb",
}
"""vLLM: a rank, or a part of the ranks, that an outside load balancer chooses. Short form -> name."""
_TRANSFER: Final = "--kv-transfer-config"
_MODE: Final = "--disaggregation-mode"
_CONFIG_FILE: Final = "--config"
_FLAGS: Final = (*_RANKED.values(), _TRANSFER, _MODE, _CONFIG_FILE)

_LEAST_PREFIX: Final = 6
"""argparse takes any unambiguous beginning of a flag; one of at least this length counts as the flag."""

_RANKS: Final = frozenset({"-dp", "--dp", "--dp-size", "--data-parallel-size"})
_LOCAL_CONNECTORS: Final = frozenset({"OffloadingConnector", "LMCacheConnectorV1"})
"""Connectors that, in the role kv_both, move KV to this engine's own cache and to no other engine."""

_TAKES_A_VALUE: Final = frozenset(
    {"--api-key", "--admin-api-key", "--node-rank", "--dist-init-addr", "--master-addr"}
)
"""Flags behind which an argument that nobody can read is surely a value, not a flag."""

_SHELLS: Final = frozenset({"sh", "bash", "dash", "ash", "zsh", "busybox"})
_REFERENCE: Final = re.compile(r"\$\$|\$\(([^()$]+)\)")


def read_command_line(container: Mapping[str, Any], *, resolve: Resolve = lambda path: None) -> Finding:
    """Read `command`, `args`, `env` of a container spec as the kubelet does. Never raises for what it finds."""
    try:
        return _read(_expanded(container, resolve))
    except _UnreadableError as error:
        return Finding(Kind.UNREADABLE, reason=str(error))


@dataclass(frozen=True, slots=True)
class _Argument:
    """One argument with every `$(NAME)` expanded up to the first that cannot be; `unknown` names that one."""

    text: str
    unknown: str = ""


def _read(arguments: Sequence[_Argument]) -> Finding:
    ranks = 1
    for index, argument in enumerate(arguments):
        name = _flag(argument)
        if name is None:
            before = _flag(arguments[index - 1]) if index else None
            if argument.unknown and not argument.text and before not in _TAKES_A_VALUE:
                raise _UnreadableError(f"argument {index} of the command cannot be read: {argument.unknown}")
            continue
        if name == _CONFIG_FILE:
            raise _UnreadableError(f"{_CONFIG_FILE} names a file that may hold any flag")
        if name in _RANKED.values():
            return Finding(Kind.DISAGGREGATED, flag=name, reason=f"{name}: another process chooses the rank")
        if name == _TRANSFER:
            found = _transfer(list(_transfer_configs(arguments)))
            if found is not None:
                return found
        elif name == _MODE:
            mode = _value(arguments, index, name)
            if mode in ("prefill", "decode"):
                return Finding(Kind.DISAGGREGATED, flag=f"{name} {mode}", reason=f"{name} {mode}")
            if mode != "null":
                raise _UnreadableError(f"{name} {mode!r} is no mode that is known")
        elif name in _RANKS:
            ranks = _count(_value(arguments, index, name), name)
    return Finding(Kind.SERVER, ranks=ranks)


def _flag(argument: _Argument) -> str | None:
    """The flag an argument is, under its full name where it is one that matters; None when it is no flag."""
    text, behind, _ = argument.text.partition("=")
    if not text.startswith("-"):
        return None
    if argument.unknown and not behind:
        raise _UnreadableError(f"the flag {text!r} cannot be read: {argument.unknown}")
    if text in _RANKED or text in _RANKS:
        return _RANKED.get(text, text)
    name = (flag_name(text) or text).partition(".")[0]
    if len(name) < _LEAST_PREFIX:
        return name
    return next((flag for flag in _FLAGS if flag.startswith(name)), name)


def _value(arguments: Sequence[_Argument], index: int, name: str) -> str:
    """What stands behind `=`, or in the next argument."""
    argument = arguments[index]
    _, behind, value = argument.text.partition("=")
    if not behind:
        if index + 1 == len(arguments):
            raise _UnreadableError(f"{name} has no value")
        argument = arguments[index + 1]
        value = argument.text
    if argument.unknown:
        raise _UnreadableError(f"the value of {name} cannot be read: {argument.unknown}")
    return value


def _count(text: str, name: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,5}", text):
        raise _UnreadableError(f"{name} {text!r} is no number of ranks")
    return int(text)


def _transfer_configs(arguments: Sequence[_Argument]) -> Iterator[dict[str, Any]]:
    """Each occurrence: a JSON object, or one key in the dotted form `--kv-transfer-config.kv_role X`."""
    for index, argument in enumerate(arguments):
        if _flag(argument) != _TRANSFER:
            continue
        _, dotted, key = argument.text.partition("=")[0].partition(".")
        value = _value(arguments, index, _TRANSFER)
        if dotted:
            yield {key: value}
            continue
        try:
            config = json.loads(value)
        except (ValueError, RecursionError):
            config = None
        if not isinstance(config, dict):
            raise _UnreadableError(f"the value of {_TRANSFER} is not a JSON object")
        yield config


def _transfer(configs: Sequence[Mapping[str, Any]]) -> Finding | None:
    """Whether KV goes to or comes from another engine. Any occurrence may be the one that counts."""
    config = {key: value for found in configs for key, value in found.items()}
    role, connector = (str(config.get(key) or "") for key in ("kv_role", "kv_connector"))
    if role == "kv_both" and connector in _LOCAL_CONNECTORS:
        return None
    if role in ("kv_producer", "kv_consumer", "kv_both"):
        return Finding(Kind.DISAGGREGATED, flag=_TRANSFER, reason=f"{_TRANSFER} with {role} by {connector}")
    raise _UnreadableError(f"{_TRANSFER} names no role that is known: {role!r}")


def _expanded(container: Mapping[str, Any], resolve: Resolve) -> list[_Argument]:
    command = container.get("command") or ()
    if not command:
        raise _UnreadableError("the Pod names no command, so the image decides what runs")
    if PurePosixPath(command[0]).name in _SHELLS:
        raise _UnreadableError(f"{command[0]} runs the command, and what a script does cannot be read")
    known, unknown = _environment(container, resolve)
    return [_expand(text, known, unknown) for text in (*command, *(container.get("args") or ()))]


def _environment(container: Mapping[str, Any], resolve: Resolve) -> tuple[dict[str, str], dict[str, str]]:
    """The values of `env`, and why the others are not known. A later variable may use an earlier one."""
    known: dict[str, str] = {}
    unknown: dict[str, str] = {}
    for variable in container.get("env") or ():
        name, source = str(variable["name"]), variable.get("valueFrom")
        known.pop(name, None)
        unknown.pop(name, None)
        if source:
            value = resolve(str((source.get("fieldRef") or {}).get("fieldPath", "")))
            if value is None:
                unknown[name] = f"{name} comes from {', '.join(source)}"
            else:
                known[name] = value
            continue
        argument = _expand(str(variable.get("value") or ""), known, unknown)
        if argument.unknown:
            unknown[name] = argument.unknown
        else:
            known[name] = argument.text
    return known, unknown


def _expand(text: str, known: Mapping[str, str], unknown: Mapping[str, str]) -> _Argument:
    """`$(NAME)` becomes its value, `$$` a dollar; what no `env` entry defines may come from elsewhere."""
    done = ""
    at = 0
    for found in _REFERENCE.finditer(text):
        done += text[at : found.start()]
        at = found.end()
        name = found.group(1)
        if name is None:
            done += "$"
        elif name in known:
            done += known[name]
        else:
            return _Argument(done, unknown.get(name, f"{name} is not defined by the Pod"))
    return _Argument(done + text[at:])
