"""Identities on a cluster whose certificate authority is not ours: asked for by signing request, as anybody may."""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .base import Kubectl
from .errors import ClusterError
from .files import write_atomically
from .pki import Pair, identity_file, kubeconfig, signing_request

SIGNED_SECONDS = 30.0


def signed_identity(kubectl: Kubectl, folder: Path, user: str, groups: Sequence[str]) -> Path:
    """A kubeconfig for `user`, its certificate signed by the cluster's own signer through `kubectl` (an admin)."""
    path = identity_file(folder, user, groups)
    if path.exists():
        return path
    request = signing_request(user, groups)
    name = f"ebb-{secrets.token_hex(5)}"
    kubectl("create", "-f", "-", stdin=json.dumps(request_object(name, request)))
    try:
        kubectl("certificate", "approve", name)
        certificate = _await_certificate(kubectl, name)
    finally:
        kubectl("delete", "certificatesigningrequest", name, check=False)
    view = json.loads(kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json"))
    cluster = view["clusters"][0]["cluster"]
    document = kubeconfig(
        server=cluster["server"],
        cluster=view["clusters"][0]["name"],
        user=user,
        authority=base64.b64decode(cluster["certificate-authority-data"]),
        pair=Pair(certificate, request.key),
    )
    write_atomically(path, json.dumps(document, indent=1), mode=0o600)
    return path


def request_object(name: str, request: Pair) -> dict[str, Any]:
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "request": base64.b64encode(request.certificate).decode(),
            "signerName": "kubernetes.io/kube-apiserver-client",
            "usages": ["client auth"],
        },
    }


def _await_certificate(kubectl: Kubectl, name: str) -> bytes:
    deadline = time.monotonic() + SIGNED_SECONDS
    while True:
        encoded = kubectl("get", "certificatesigningrequest", name, "-o", "jsonpath={.status.certificate}")
        if encoded:
            return base64.b64decode(encoded)
        if time.monotonic() > deadline:
            raise ClusterError(f"signing request {name} was not signed within {SIGNED_SECONDS:.0f} s")
        time.sleep(0.2)


def node_address(kubectl: Kubectl) -> str:
    """The InternalIP of the first node."""
    path = 'jsonpath={.items[0].status.addresses[?(@.type=="InternalIP")].address}'
    return kubectl("get", "nodes", "-o", path).strip()
