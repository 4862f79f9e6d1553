"""The command lines and configuration files of a node: containerd, kubelet, kube-proxy and CoreDNS."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .control_plane_programs import ControlPlaneSpec, Program, write_kubeconfig
from .files import write_atomically

CLUSTER_DOMAIN: Final = "cluster.local"
RUNTIME_ROOT: Final = Path("/run")
"""Covered by a tmpfs of the node's own, so sockets get short paths and leave nothing behind."""
CONTAINERD_SOCKET: Final = RUNTIME_ROOT / "containerd" / "containerd.sock"
KUBELET_ROOT: Final = Path("/var/lib/kubelet")
"""The usual place: the socket of the device plugins lies here whatever `--root-dir` says."""

MADE_FOLDERS: Final = ("/var/lib/cni", "/var/lib/kubelet")
"""Mount points that this machine may lack; empty ones are removed again with the last node."""
TMPFS: Final = ("/run", "/var/log", *MADE_FOLDERS)
"""Folders that node programs write to whatever they are told; each node gets its own, in memory."""

KUBELET_SYSCTLS: Final = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
}
"""What the kubelet would otherwise set on the whole machine."""


@dataclass(frozen=True)
class NodeSpec:
    """One node: its control plane, its addresses and where its programs are."""

    control_plane: ControlPlaneSpec
    node_name: str
    pod_cidr: str
    cgroup: str
    """The cgroup, below the root of each hierarchy, that holds all of this node's containers."""
    cni_plugins: Path
    containerd: str
    environment: Mapping[str, str]
    sandbox_image: str

    @property
    def directory(self) -> Path:
        return self.control_plane.directory

    @property
    def address(self) -> str:
        return self.control_plane.address


def write_node_files(spec: NodeSpec) -> None:
    """Configuration, certificates and kubeconfigs that the command lines below name."""
    folder, control_plane = spec.directory, spec.control_plane
    authority = control_plane.authority
    authority.write("kubelet", authority.server(spec.node_name, [spec.address], [spec.node_name]))
    users = {
        "kubelet": (f"system:node:{spec.node_name}", ("system:nodes",)),
        "kube-proxy": ("system:kube-proxy", ()),
        # No bootstrap role covers Services, EndpointSlices and namespaces together.
        "coredns": ("system:coredns", ("system:masters",)),
    }
    for component, (user, groups) in users.items():
        write_kubeconfig(control_plane, folder / f"{component}.kubeconfig", user=user, groups=groups)
    write_atomically(folder / "containerd.toml", containerd_config(spec))
    write_atomically(folder / "cni" / "10-ebb.conflist", json.dumps(cni_config(spec), indent=1))
    write_atomically(folder / "kubelet.json", json.dumps(kubelet_config(spec), indent=1))
    write_atomically(folder / "kube-proxy.json", json.dumps(kube_proxy_config(spec), indent=1))
    write_atomically(folder / "Corefile", corefile(spec))
    write_atomically(folder / "resolv.conf", f"nameserver {spec.address}\n")


def containerd_config(spec: NodeSpec) -> str:
    """Version 2 of the format: containerd 1.6 knows no other, and 2.x still reads it."""
    return f"""\
version = 2
root = "{spec.directory / "containerd"}"
state = "{RUNTIME_ROOT / "containerd" / "state"}"
disabled_plugins = ["io.containerd.internal.v1.opt"]

[grpc]
  address = "{CONTAINERD_SOCKET}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{spec.sandbox_image}"
  # Without CAP_SYS_RESOURCE runc dies when it lowers the score, with "can't get final child's PID from pipe".
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{spec.cni_plugins}"
    conf_dir = "{spec.directory / "cni"}"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
"""


def cni_config(spec: NodeSpec) -> dict[str, Any]:
    """A routed link per Pod. On a bridge, an answer between two Pods would bypass kube-proxy's translation."""
    ipam = {
        "type": "host-local",
        "dataDir": "/run/cni-addresses",
        "ranges": [[{"subnet": spec.pod_cidr}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    return {
        "cniVersion": "0.4.0",
        "name": "ebb",
        "plugins": [{"type": "ptp", "ipMasq": False, "ipam": ipam}],
    }


def kubelet_config(spec: NodeSpec) -> dict[str, Any]:
    """Works on cgroup v1 and v2, never evicts and never collects an image: nothing here can be pulled again."""
    pki = spec.directory / "pki"
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(pki / "kubelet.crt"),
        "tlsPrivateKeyFile": str(pki / "kubelet.key"),
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "clusterDomain": CLUSTER_DOMAIN,
        "clusterDNS": [spec.address],
        "resolvConf": str(spec.directory / "resolv.conf"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": spec.cgroup,
        # Without these every container of every node would go to one cgroup, /k8s.io, and nobody could tell whose.
        "cgroupsPerQOS": True,
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "volumePluginDir": str(spec.directory / "flexvolume"),
        "maxPods": 250,
        "evictionHard": dict.fromkeys(
            ("memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available"), "0%"
        ),
        "imageGCHighThresholdPercent": 100,
        "serializeImagePulls": False,
        "registryPullQPS": 0,
        "eventRecordQPS": 0,
        "kubeAPIQPS": 200,
        "kubeAPIBurst": 400,
        "healthzBindAddress": "127.0.0.1",
        "nodeStatusReportFrequency": "1m0s",
        "nodeStatusUpdateFrequency": "5s",
    }


def kube_proxy_config(spec: NodeSpec) -> dict[str, Any]:
    """nftables, with every conntrack setting left alone: those belong to the whole machine."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": str(spec.directory / "kube-proxy.kubeconfig")},
        "hostnameOverride": spec.node_name,
        "clusterCIDR": spec.pod_cidr,
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
        "nftables": {"minSyncPeriod": "0s"},
        "oomScoreAdj": 0,
    }


def corefile(spec: NodeSpec) -> str:
    """Cluster names alone, answered from memory without a cache, so a name is there as soon as its endpoints are."""
    return f"""\
.:53 {{
    errors
    ready 127.0.0.1:8181
    kubernetes {CLUSTER_DOMAIN} in-addr.arpa {{
        kubeconfig {spec.directory / "coredns.kubeconfig"}
        ttl 1
    }}
}}
"""


def node_programs(spec: NodeSpec) -> list[Program]:
    """containerd starts at once; what talks to the API server waits for it."""
    binaries, folder = spec.control_plane.binaries, spec.directory
    return [
        Program(
            name="containerd",
            argv=[spec.containerd, f"--config={folder / 'containerd.toml'}"],
            env=spec.environment,
            ready={"socket": str(CONTAINERD_SOCKET)},
        ),
        Program(
            name="kubelet",
            after=["kube-apiserver", "containerd"],
            argv=[
                str(binaries / "kubelet"),
                f"--config={folder / 'kubelet.json'}",
                f"--kubeconfig={folder / 'kubelet.kubeconfig'}",
                f"--root-dir={KUBELET_ROOT}",
                f"--cert-dir={KUBELET_ROOT / 'pki'}",
                f"--hostname-override={spec.node_name}",
                f"--node-ip={spec.address}",
            ],
            env=spec.environment,
            ready={"url": "http://127.0.0.1:10248/healthz"},
        ),
        Program(
            name="kube-proxy",
            after=["kube-apiserver"],
            argv=[str(binaries / "kube-proxy"), f"--config={folder / 'kube-proxy.json'}"],
            env=spec.environment,
            ready={"url": "http://127.0.0.1:10249/healthz"},
        ),
        Program(
            name="coredns",
            after=["kube-apiserver"],
            argv=[str(binaries / "coredns"), "-conf", str(folder / "Corefile")],
            ready={"url": "http://127.0.0.1:8181/ready"},
        ),
    ]
