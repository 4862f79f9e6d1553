"""Clusters for demo and suites: one real node on this machine, kind, or a cluster that is there already.

    from e2e.cluster import get_cluster, up, down

    cluster = up("ebb")                      # starts it, or finds it running
    cluster.kubectl("get", "pods")           # the cluster's own kubectl, as admin
    cluster.load_image(archive)              # once per content
    cluster.identity("ebb-controller")       # a kubeconfig with a certificate of its own

`fresh_cluster(name)` is for a suite that wants an empty one; `control_plane(folder)` starts etcd and the API
server alone, without root, for tests of the API.
"""

from .bare_control_plane import ControlPlane, control_plane
from .base import Cluster
from .errors import ClusterError
from .providers import down, fresh_cluster, get_cluster, up
from .state import ProviderName

__all__ = [
    "Cluster",
    "ClusterError",
    "ControlPlane",
    "ProviderName",
    "control_plane",
    "down",
    "fresh_cluster",
    "get_cluster",
    "up",
]
