"""What `run` can be told by flags; everything else about the controller stands in the objects it runs."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NamedTuple, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


class LogFormat(StrEnum):
    """`auto` is `text` on a terminal and `json` anywhere else."""

    AUTO = "auto"
    JSON = "json"
    TEXT = "text"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Address(NamedTuple):
    """Where to listen. An empty host is every address of this machine."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """`host:port`, `:port` or `[v6]:port`; port 0 takes a free one. Raises ValueError."""
        match = re.fullmatch(r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<host>[^:\[\]]*)):(?P<port>\d{1,5})", text)
        if match is None or int(match["port"]) > 65535:
            raise ValueError(f"{text!r} is not of the form host:port")
        return cls(match["v6"] or match["host"] or "", int(match["port"]))


def _address(value: object) -> object:
    return Address.parse(value) if isinstance(value, str) else value


class Settings(BaseModel):
    """Settings of one controller process."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kubeconfig: Path | None = Field(
        default=None,
        description="Kubeconfig; default $KUBECONFIG, then the Pod's service account, then ~/.kube/config.",
    )
    context: str | None = Field(
        default=None, description="Context of the kubeconfig; default its current one."
    )
    namespace: str | None = Field(
        default=None,
        pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$",
        description="The one namespace to look after; default all of them.",
    )
    leader_elect: bool | None = Field(
        default=None,
        description="Act only while holding the Lease; default in a cluster yes, on a kubeconfig no.",
    )
    lease_namespace: str | None = Field(
        default=None,
        pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$",
        description="Where the Lease ebb-controller is; default the controller's own namespace.",
    )
    bind: Annotated[Address, BeforeValidator(_address)] = Field(
        default=Address("", 8080),
        description="Where /healthz, /readyz and /metrics are served, as host:port.",
    )
    workers: int = Field(default=8, ge=1, le=256, description="How many deployments are passed over at once.")
    log_format: LogFormat = Field(
        default=LogFormat.AUTO, description="json, text, or auto: text on a terminal."
    )
    log_level: LogLevel = Field(default=LogLevel.INFO)
