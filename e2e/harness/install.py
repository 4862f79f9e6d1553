"""Ebb on a cluster, the way a user installs it: the CRD, its RBAC, and the controller from `manifests/`."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster import Cluster
from e2e.harness.waiting import wait_for
from e2e.images import build

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = "ebb-system"


def install_api(cluster: Cluster) -> None:
    """The CRD and the controller's permissions; what a controller outside the cluster needs."""
    cluster.kubectl("apply", "--server-side", "-k", str(ROOT / "manifests" / "crd"))
    # Not `kubectl wait`: it fails on a CRD that has no conditions yet.
    wait_for("the API of ModelDeployments", lambda: _is_served(cluster), seconds=30)
    cluster.kubectl("apply", "-k", str(ROOT / "manifests" / "rbac"))


def _is_served(cluster: Cluster) -> bool:
    found = cluster.kubectl("get", "--raw", "/apis/ebb.dev/v1alpha1", check=False)
    return '"modeldeployments"' in found


def bind_user(cluster: Cluster, user: str) -> None:
    """Give a user of its own certificate exactly the controller's permissions."""
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"{user}-user"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "ebb-controller",
        },
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(binding))


def bind_lease(cluster: Cluster, user: str, *, namespace: str) -> None:
    """Let a user elect leaders in a namespace, by the very Role that the controller has in its own."""
    role = yaml.safe_load((ROOT / "manifests" / "rbac" / "role.yaml").read_text())
    role["metadata"]["namespace"] = namespace
    binding = {
        "apiVersion": role["apiVersion"],
        "kind": "RoleBinding",
        "metadata": {"name": user, "namespace": namespace},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "Role",
            "name": role["metadata"]["name"],
        },
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    for manifest in (role, binding):
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))


def install_controller(
    cluster: Cluster, *, only: str | None = None, progress: Callable[[str], None] = print
) -> None:
    """Run the controller in the cluster, from its image and under its own service account.

    `only` bounds it to one namespace, so that it leaves the other tests of the node alone.
    """
    image = build("controller", progress=progress)
    cluster.load_image(image.archive)
    name, _, tag = image.reference.rpartition(":")
    with tempfile.TemporaryDirectory(prefix="ebb-kustomize-") as folder:
        overlay: dict[str, Any] = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [os.path.relpath(ROOT / "manifests" / "controller", Path(folder).resolve())],
            "images": [{"name": "ebb-controller", "newName": name, "newTag": tag}],
        }
        if only is not None:
            path = "/spec/template/spec/containers/0/command/-"
            operation = {"op": "add", "path": path, "value": f"--namespace={only}"}
            target = {"kind": "Deployment", "name": "ebb-controller"}
            overlay["patches"] = [{"target": target, "patch": json.dumps([operation])}]
        (Path(folder) / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
        cluster.kubectl("apply", "-k", folder)
    cluster.kubectl(
        "-n", NAMESPACE, "rollout", "status", "deployment/ebb-controller", "--timeout=120s", timeout=130
    )


def remove_controller(cluster: Cluster) -> None:
    cluster.kubectl("-n", NAMESPACE, "delete", "deployment,pdb", "ebb-controller", "--ignore-not-found")
