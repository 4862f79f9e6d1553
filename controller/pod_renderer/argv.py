"""The engine's command line, and what the user's part of it says about the listener."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from apis.v1alpha1.engine import EngineName
from apis.v1alpha1.flags import flag_name, is_tls_flag
from apis.v1alpha1.model_deployment import ModelDeploymentSpec
from apis.v1alpha1.role import Role

ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - the Pod's own network namespace
CLIENT_CERTIFICATES: Final = "--ssl-cert-reqs"
NO_CLIENT_CERTIFICATE: Final = ("0", "1")
"""ssl.CERT_NONE and ssl.CERT_OPTIONAL: a kubelet without a certificate still gets an answer."""


@dataclass(frozen=True, slots=True)
class Listener:
    """Where the rendered engine serves HTTP: the port that Services target, and the scheme."""

    scheme: str
    port: int

    def url(self, path: str) -> str:
        """Over loopback, as something inside the Pod reaches it."""
        return f"{self.scheme}://127.0.0.1:{self.port}{path}"


def engine_argv(spec: ModelDeploymentSpec, role: Role) -> list[str]:
    """The whole argv of `main`: the user's own for a take-over role, else ours, the user's flags, the
    listener."""
    if role.command is not None:
        return list(role.command)
    extra = role.extra_args or ()
    argv = [*_start(spec), *extra]
    if not passes(extra, "--host"):
        argv += ["--host", ANY_ADDRESS]
    if not passes(extra, "--port"):
        argv += ["--port", str(role.served.port)]
    return argv


def _start(spec: ModelDeploymentSpec) -> list[str]:
    match spec.engine.name:
        case EngineName.VLLM:
            return ["vllm", "serve", spec.model_path, "--served-model-name", spec.model.name]
        case EngineName.SGLANG:
            return [
                "python3",
                "-m",
                "sglang.launch_server",
                "--model-path",
                spec.model_path,
                "--served-model-name",
                spec.model.name,
                "--enable-metrics",
            ]
        case EngineName.CUSTOM:
            raise ValueError("a Custom engine has no command line but the role's own `command`")


def listener(role: Role) -> Listener:
    return Listener(scheme="https" if serves_tls(role) else "http", port=role.served.port)


def serves_tls(role: Role) -> bool:
    """Whether the engine is given a certificate or a key; no other flag makes it speak TLS."""
    return any(is_tls_flag(name) for name, _ in flags(role.extra_args or ()))


def demands_client_certificate(role: Role) -> bool:
    """Whether a TLS listener turns away whoever brings no certificate, as a kubelet does not. The last flag
    wins."""
    values = [value for name, value in flags(role.extra_args or ()) if name == CLIENT_CERTIFICATES]
    return serves_tls(role) and bool(values) and values[-1] not in NO_CLIENT_CERTIFICATE


def moves_listener(role: Role) -> bool:
    """Whether the user decides where the engine listens, so that nothing rendered can know it."""
    extra = role.extra_args or ()
    return passes(extra, "--host") or passes(extra, "--port")


def passes(arguments: Sequence[str], flag: str) -> bool:
    """Whether the flag is given by its whole name.

    An abbreviation does not count: what is rendered after it under the whole name then wins, as argparse has
    it.
    """
    return any(name == flag for name, _ in flags(arguments))


def flags(arguments: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Each long flag, underscores folded, with the value behind `=` or the argument after it."""
    for index, argument in enumerate(arguments):
        name = flag_name(argument)
        if name is not None:
            _, given, value = argument.partition("=")
            following = arguments[index + 1] if index + 1 < len(arguments) else None
            yield name, value if given else following
