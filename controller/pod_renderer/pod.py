"""One Pod: a member of a replica of a role."""

from __future__ import annotations

import posixpath
from typing import Any, Final

from apis.v1alpha1 import labels
from apis.v1alpha1.model_deployment import ModelDeploymentSpec
from apis.v1alpha1.role import DEFAULT_GRACE_SECONDS, Role
from controller.drain_hook.render import hook_facts, hook_lifecycle
from controller.pod_renderer import argv
from controller.pod_renderer.env import as_given, engine_env
from controller.pod_renderer.hash import compute_hash
from controller.pod_renderer.labels import seat_labels
from controller.pod_renderer.owner import Owner
from controller.pod_renderer.probes import engine_probes

METRICS_PATH: Final = "/metrics"
SHM_VOLUME: Final = "ebb-shm"
SHM_PATH: Final = "/dev/shm"  # noqa: S108 - a mount point, not a temporary file


def render_pod(
    owner: Owner, spec: ModelDeploymentSpec, role: Role, *, ordinal: int, member: int = 0
) -> dict[str, Any]:
    """The Pod of a seat, ready to be created, with its hash and, from its first moment, the eligibility
    label.

    `spec` and `role` must be free of `spec_problems`; values of theirs are shared with the result, not
    copied.
    """
    grace = _grace_seconds(role)
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": owner.metadata(
            owner.pod_name(role.name, ordinal, member),
            seat_labels(owner, role, ordinal=ordinal, member=member),
        ),
        "spec": _pod_spec(spec, role, grace),
    }
    annotations = dict(role.pod_annotations or {}) | _scrape(role)
    if annotations:
        pod["metadata"]["annotations"] = annotations
    hook: dict[str, Any] | None = None
    if not role.is_takeover:
        assert grace is not None  # a managed role always has one
        facts: dict[str, Any] = {
            "engine": spec.engine.name.value,
            "url": argv.listener(role).url(METRICS_PATH),
            "grace_seconds": grace,
        }
        hook = hook_facts(**facts)
    digest = compute_hash(pod, hook)
    if hook is not None:
        pod["spec"]["containers"][0]["lifecycle"] = hook_lifecycle(**facts)
    pod["metadata"]["annotations"] = annotations | {labels.POD_HASH: digest}
    pod["metadata"]["labels"][labels.ENDPOINT_ELIGIBLE] = "true"
    return pod


def _grace_seconds(role: Role) -> int | None:
    """Written on every managed Pod, since its hook counts on it; a take-over role keeps Kubernetes' own if
    unset."""
    if role.termination_grace_period_seconds is None and not role.is_takeover:
        return DEFAULT_GRACE_SECONDS
    return role.termination_grace_period_seconds


def _scrape(role: Role) -> dict[str, str]:
    """Where the engine's own figures are; nothing is known about a take-over role's."""
    if role.is_takeover:
        return {}
    where = argv.listener(role)
    return {
        labels.SCRAPE: "true",
        labels.SCRAPE_PATH: METRICS_PATH,
        labels.SCRAPE_PORT: str(where.port),
        labels.SCRAPE_SCHEME: where.scheme,
    }


def _pod_spec(spec: ModelDeploymentSpec, role: Role, grace: int | None) -> dict[str, Any]:
    volumes, mounts = _storage(role)
    pod_spec: dict[str, Any] = {
        "restartPolicy": "Always",
        "enableServiceLinks": False,
        "containers": [_main(spec, role, mounts)],
        "volumes": volumes,
        "initContainers": as_given(role.init_containers or ()),
        "terminationGracePeriodSeconds": grace,
        "imagePullSecrets": as_given(role.image_pull_secrets or ()),
        "nodeSelector": role.node_selector,
        "tolerations": list(role.tolerations or ()),
        "affinity": role.affinity,
        "topologySpreadConstraints": list(role.topology_spread_constraints or ()),
        "runtimeClassName": role.runtime_class_name,
        "priorityClassName": role.priority_class_name,
        "schedulerName": role.scheduler_name,
        "securityContext": role.pod_security_context,
        "dnsPolicy": role.dns_policy,
        "serviceAccountName": role.service_account_name,
        "automountServiceAccountToken": None if role.service_account_name else False,
    }
    return _without_empty(pod_spec)


def _main(spec: ModelDeploymentSpec, role: Role, mounts: list[dict[str, Any]]) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": labels.MAIN_CONTAINER,
        "image": role.image,
        "imagePullPolicy": role.image_pull_policy and role.image_pull_policy.value,
        "command": argv.engine_argv(spec, role),
        **engine_env(role),
        "ports": [
            {"name": port.name, "containerPort": port.port, "protocol": port.protocol.value}
            for port in role.ports
        ],
        "resources": role.resources,
        "securityContext": role.security_context,
        "volumeMounts": mounts,
        **engine_probes(role),
    }
    return _without_empty(container)


def _storage(role: Role) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Volumes and mounts: the user's, and memory on /dev/shm unless a mount of the user's is there.

    An engine needs more than the runtime's 64 MiB there and fails to start without.
    """
    volumes, mounts = as_given(role.volumes or ()), as_given(role.volume_mounts or ())
    if not any(posixpath.normpath(mount["mountPath"]) == SHM_PATH for mount in mounts):
        memory = {"medium": "Memory", "sizeLimit": str(role.shm_size)}
        volumes.append({"name": SHM_VOLUME, "emptyDir": memory})
        mounts.append({"name": SHM_VOLUME, "mountPath": SHM_PATH})
    return volumes, mounts


def _without_empty(fragment: dict[str, Any]) -> dict[str, Any]:
    """Without what is not set: a field that a later release adds must not change a Pod that does not use it."""
    return {key: value for key, value in fragment.items() if value is False or value}
