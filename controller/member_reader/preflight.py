"""What a Pod itself shows before anything is asked of it: why it is not read at all, or where and for what to look."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from apis.v1alpha1 import labels
from controller.engines.command_line import Kind, read_command_line
from controller.engines.gauges import Gauge, demanded
from controller.member_reader.verdict import Reading, held, refused
from controller.snapshot import PodView

LOOPBACK: Final = "127.0.0.1"
_PATH: Final = re.compile(r"/[!-~]*")
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberTarget:
    """A member as it was admitted: what must still hold for a reading to speak of it."""

    namespace: str
    name: str
    uid: str
    owner_uid: str
    """UID of the ModelDeployment."""
    container_id: str
    restart_count: int
    engine: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """Where to look and what must be found there."""

    url: str
    gauges: Sequence[Gauge]
    ranks: int


def preflight(pod: PodView, target: MemberTarget) -> Reading | None:
    """Why this Pod is not read, None when it may be."""
    found = plan_read(pod, target)
    return found if isinstance(found, Reading) else None


def plan_read(pod: PodView, target: MemberTarget) -> ReadPlan | Reading:
    """How to read this Pod, or the reading that stands for not reading it."""
    if not target.uid:
        return held("the target names no member")
    if pod.uid != target.uid:
        return held(f"{target.name} now carries uid {pod.uid or 'none'}, not {target.uid}")
    if not target.owner_uid or pod.owner_uid != target.owner_uid:
        return held(
            f"{target.name} is owned by {pod.owner_uid or 'no ModelDeployment'}, not by this deployment"
        )
    container = pod.main
    if container is None:
        return held(f"{target.name} has no container {labels.MAIN_CONTAINER}")
    if pod.terminating:
        return held(f"{target.name} is terminating")
    gauges = demanded(target.engine)
    if not gauges:
        return refused(f"engine {target.engine or 'unnamed'} has no list of gauges that say what it holds")
    command = read_command_line(container, resolve=_fields(pod).get)
    if command.kind is Kind.DISAGGREGATED:
        return refused(
            f"{target.name} is a prefill or decode engine or one rank of several: {command.reason}"
        )
    if labels.SCRAPE_PORT not in pod.annotations:
        return held(
            f"there is nothing to read in {target.name}: its own command publishes no metrics that are known"
        )
    if command.kind is Kind.UNREADABLE:
        return refused(f"whether {target.name} shares its work with others cannot be read: {command.reason}")
    url = _url(pod.annotations)
    if url is None:
        scheme, port, path = pod.identity.scrape
        return held(f"the scrape annotations of {target.name} name no URL: {scheme!r}, {port!r}, {path!r}")
    return _container(pod, target) or ReadPlan(url=url, gauges=gauges, ranks=command.ranks)


def _container(pod: PodView, target: MemberTarget) -> Reading | None:
    """Whether `main` is the very process that was admitted, still running."""
    identity = pod.identity
    if not identity.running:
        state = next(iter((pod.main_status or {}).get("state") or ()), "in no state")
        return held(f"container {labels.MAIN_CONTAINER} of {target.name} is {state} rather than running")
    if not identity.container_id:
        return held(f"container {labels.MAIN_CONTAINER} of {target.name} has no identity yet")
    restarts = identity.restart_count - target.restart_count
    if restarts > 0:
        times = "once" if restarts == 1 else f"{restarts} times"
        return held(f"container {labels.MAIN_CONTAINER} of {target.name} restarted {times} since admission")
    if restarts or identity.container_id != target.container_id:
        return held(f"container {labels.MAIN_CONTAINER} of {target.name} is another one than at admission")
    return None


def _url(annotations: Mapping[str, str]) -> str | None:
    scheme, port, path = (
        annotations.get(key, "") for key in (labels.SCRAPE_SCHEME, labels.SCRAPE_PORT, labels.SCRAPE_PATH)
    )
    if scheme not in ("http", "https") or not _PATH.fullmatch(path):
        return None
    if not _PORT.fullmatch(port) or int(port) > 65535:
        return None
    return f"{scheme}://{LOOPBACK}:{port}{path}"


def _fields(pod: PodView) -> Mapping[str, str]:
    """The downward API paths that a command may use, from the Pod itself."""
    fields: dict[str, Any] = {
        "metadata.name": pod.name,
        "metadata.namespace": pod.namespace,
        "metadata.uid": pod.uid,
        "spec.nodeName": pod.node,
        "status.podIP": pod.ip,
    }
    fields |= {f"metadata.labels['{key}']": value for key, value in pod.labels.items()}
    fields |= {f"metadata.annotations['{key}']": value for key, value in pod.annotations.items()}
    return {path: str(value) for path, value in fields.items() if value}
