"""Which names and addresses a local node takes, so that several stand side by side on one machine.

Everything follows from one index, which is taken machine-wide by making a cgroup named after it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from .errors import ClusterError

INDEXES: Final = range(64)
LINK_NETWORK: Final = ipaddress.ip_network("198.51.100.0/24")
"""Documentation addresses (RFC 5737): nobody routes them. One /30 per node."""
POD_NETWORK: Final = ipaddress.ip_network("10.213.0.0/17")
"""One /23 per node: 510 addresses for 250 Pods."""


@dataclass(frozen=True)
class NodeAddresses:
    """What the node with this index is called and where it stands."""

    index: int

    @property
    def link(self) -> str:
        """This machine's end of the link; the node's own end is eth0."""
        return f"ebb{self.index}"

    @property
    def link_cidr(self) -> str:
        return f"{LINK_NETWORK[4 * self.index]}/30"

    @property
    def host(self) -> str:
        return str(LINK_NETWORK[4 * self.index + 1])

    @property
    def node(self) -> str:
        return str(LINK_NETWORK[4 * self.index + 2])

    @property
    def pod_cidr(self) -> str:
        return f"{POD_NETWORK[512 * self.index]}/23"


def cgroup_of(index: int, tag: str) -> str:
    """The name of the cgroup that holds the node's containers and reserves its index."""
    return f"ebb{index}-{tag}"


def choose(*, cgroups: Iterable[str], links: Collection[str], networks: Sequence[str]) -> NodeAddresses:
    """The lowest index that no cgroup holds, with no such link and no address or route that overlaps.

    `networks` are CIDRs that this machine has addresses in or routes to; a default route is not one of them.
    """
    taken = {cgroup.partition("-")[0] for cgroup in cgroups}
    in_use = [ipaddress.ip_network(network, strict=False) for network in networks]
    for index in INDEXES:
        candidate = NodeAddresses(index)
        wanted = [ipaddress.ip_network(cidr) for cidr in (candidate.link_cidr, candidate.pod_cidr)]
        if candidate.link in taken or candidate.link in links:
            continue
        if any(
            ours.overlaps(theirs) for ours in wanted for theirs in in_use if ours.version == theirs.version
        ):
            continue
        return candidate
    raise ClusterError(
        f"no addresses left: all {len(INDEXES)} networks of {LINK_NETWORK} and {POD_NETWORK} are in use here; "
        "take a cluster down (python -m e2e.cluster status lists them)"
    )
