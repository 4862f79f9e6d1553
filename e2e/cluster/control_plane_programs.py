"""The command lines of a control plane, as plain data: what starts, after what, and how it is known to be ready."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from .files import write_atomically
from .pki import Authority, service_account_key

SERVICE_CIDR: Final = "10.96.0.0/16"
SERVICE_ADDRESS: Final = "10.96.0.1"
"""The ClusterIP of the `kubernetes` Service: the first address of the range."""

ADMIN: Final = ("ebb-test-admin", ("system:masters",))

Check = Mapping[str, str]


@dataclass(frozen=True)
class Program:
    """One program of a plan; see `supervisor.py` for what each field does there."""

    name: str
    argv: Sequence[str]
    after: Sequence[str] = ()
    ready: Check | None = None
    env: Mapping[str, str] = field(default_factory=dict)

    def as_plan(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "argv": list(self.argv),
            "after": list(self.after),
            "ready": None if self.ready is None else dict(self.ready),
            "env": dict(self.env),
        }


@dataclass(frozen=True)
class ControlPlaneSpec:
    """Where a control plane keeps its files and listens."""

    directory: Path
    binaries: Path
    address: str
    """The address clients and nodes use; etcd stays on loopback."""
    bind: str
    port: int = 6443
    etcd_port: int = 2379
    etcd_peer_port: int = 2380
    with_nodes: bool = True
    """Off where Pods are only written and read: then nothing makes the accounts they would need to run."""

    @property
    def server(self) -> str:
        return f"https://{self.address}:{self.port}"

    @property
    def authority(self) -> Authority:
        return Authority(self.directory / "pki")

    @property
    def audit_log(self) -> Path:
        return self.directory / "audit.log"

    @property
    def admin_kubeconfig(self) -> Path:
        return self.directory / "admin.kubeconfig"


def write_control_plane_files(spec: ControlPlaneSpec) -> None:
    """Keys, certificates, kubeconfigs and the audit policy that the command lines below name."""
    folder = spec.directory / "pki"
    folder.mkdir(parents=True, exist_ok=True)
    authority = Authority.create(folder)
    service_account_key(folder)
    names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    addresses = sorted({"127.0.0.1", spec.address, SERVICE_ADDRESS})
    authority.write("apiserver", authority.server("kube-apiserver", addresses, names))
    authority.write(
        "apiserver-kubelet-client", authority.client("kube-apiserver-kubelet-client", ["system:masters"])
    )
    admin_user, admin_groups = ADMIN
    admin = authority.client(admin_user, admin_groups)
    authority.write("admin", admin)
    write_kubeconfig(spec, spec.admin_kubeconfig, user=admin_user, groups=admin_groups)
    for component in ("kube-controller-manager", "kube-scheduler"):
        path = spec.directory / f"{component}.kubeconfig"
        write_kubeconfig(spec, path, user=f"system:{component}", groups=())
    write_atomically(spec.directory / "audit-policy.json", json.dumps(audit_policy(), indent=1))


def write_kubeconfig(spec: ControlPlaneSpec, path: Path, *, user: str, groups: Sequence[str]) -> Path:
    """A kubeconfig at `path` with a client certificate of its own for `user` in `groups`."""
    pair = spec.authority.client(user, groups)
    return spec.authority.kubeconfig(path, server=spec.server, cluster="ebb", user=user, pair=pair)


def audit_policy() -> dict[str, Any]:
    """What the checks of the suites read: bodies where UID preconditions stand, metadata for the rest.

    Reads by the cluster's own components are left out: they are most of the traffic and nobody asks for them.
    """
    reads = ["get", "list", "watch"]
    groups = ["system:nodes", "system:serviceaccounts:kube-system"]
    components = [
        "system:apiserver",
        "system:coredns",
        "system:kube-controller-manager",
        "system:kube-proxy",
        "system:kube-scheduler",
    ]
    bodies = [
        {"group": "", "resources": ["pods", "pods/eviction", "services"]},
        {"group": "ebb.dev", "resources": ["modeldeployments", "modeldeployments/status"]},
        {"group": "kueue.x-k8s.io", "resources": ["workloads", "workloads/status"]},
    ]
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "None", "nonResourceURLs": ["/healthz*", "/livez*", "/readyz*", "/version*"]},
            {"level": "None", "users": components, "verbs": reads},
            {"level": "None", "userGroups": groups, "verbs": reads},
            {"level": "Metadata", "resources": [{"group": "", "resources": ["pods/exec"]}]},
            {"level": "Request", "resources": bodies},
            {"level": "Metadata"},
        ],
    }


def readyz(spec: ControlPlaneSpec) -> Check:
    """The check of the API server, as the admin, since anonymous requests need RBAC that is not there yet."""
    pki = spec.directory / "pki"
    return {
        "url": f"{spec.server}/readyz",
        "ca": str(pki / "ca.crt"),
        "certificate": str(pki / "admin.crt"),
        "key": str(pki / "admin.key"),
    }


def etcd(spec: ControlPlaneSpec) -> Program:
    client = f"http://127.0.0.1:{spec.etcd_port}"
    peer = f"http://127.0.0.1:{spec.etcd_peer_port}"
    return Program(
        name="etcd",
        argv=[
            str(spec.binaries / "etcd"),
            "--name=ebb",
            f"--data-dir={spec.directory / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=ebb={peer}",
            # The data is worth nothing after a crash of the machine, and a sync per write is what makes etcd slow.
            "--unsafe-no-fsync",
        ],
        ready={"url": f"{client}/readyz"},
    )


def kube_apiserver(spec: ControlPlaneSpec) -> Program:
    pki = spec.directory / "pki"
    without_nodes = ["--disable-admission-plugins=ServiceAccount", "--endpoint-reconciler-type=none"]
    return Program(
        name="kube-apiserver",
        after=["etcd"],
        argv=[
            str(spec.binaries / "kube-apiserver"),
            f"--advertise-address={spec.address}",
            f"--bind-address={spec.bind}",
            f"--secure-port={spec.port}",
            f"--etcd-servers=http://127.0.0.1:{spec.etcd_port}",
            f"--service-cluster-ip-range={SERVICE_CIDR}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            *([] if spec.with_nodes else without_nodes),
            f"--client-ca-file={pki / 'ca.crt'}",
            f"--tls-cert-file={pki / 'apiserver.crt'}",
            f"--tls-private-key-file={pki / 'apiserver.key'}",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={pki / 'sa.pub'}",
            f"--service-account-signing-key-file={pki / 'sa.key'}",
            f"--kubelet-certificate-authority={pki / 'ca.crt'}",
            f"--kubelet-client-certificate={pki / 'apiserver-kubelet-client.crt'}",
            f"--kubelet-client-key={pki / 'apiserver-kubelet-client.key'}",
            # The name of the node does not resolve on the node itself.
            "--kubelet-preferred-address-types=InternalIP",
            f"--audit-policy-file={spec.directory / 'audit-policy.json'}",
            f"--audit-log-path={spec.audit_log}",
            "--audit-log-maxsize=4096",
            # Batches could still be on their way when a check reads the log, and get lost with a killed server.
            "--audit-log-mode=blocking",
            f"--cert-dir={spec.directory / 'apiserver'}",
        ],
        ready=readyz(spec),
    )


def kube_controller_manager(spec: ControlPlaneSpec) -> Program:
    pki = spec.directory / "pki"
    return Program(
        name="kube-controller-manager",
        # Started before the RBAC bootstrap is done it would exit.
        after=["kube-apiserver"],
        argv=[
            str(spec.binaries / "kube-controller-manager"),
            f"--kubeconfig={spec.directory / 'kube-controller-manager.kubeconfig'}",
            f"--root-ca-file={pki / 'ca.crt'}",
            f"--service-account-private-key-file={pki / 'sa.key'}",
            f"--cluster-signing-cert-file={pki / 'ca.crt'}",
            f"--cluster-signing-key-file={pki / 'ca.key'}",
            # The bootstrap roles are bound to an account per controller; the manager's own user may next to nothing.
            "--use-service-account-credentials=true",
            f"--flex-volume-plugin-dir={spec.directory / 'flexvolume'}",
            "--leader-elect=false",
            "--secure-port=0",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
        ],
    )


def kube_scheduler(spec: ControlPlaneSpec) -> Program:
    return Program(
        name="kube-scheduler",
        after=["kube-apiserver"],
        argv=[
            str(spec.binaries / "kube-scheduler"),
            f"--kubeconfig={spec.directory / 'kube-scheduler.kubeconfig'}",
            "--leader-elect=false",
            "--secure-port=0",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
        ],
    )
