"""Names and addresses of nodes that stand side by side."""

from __future__ import annotations

import ipaddress
import itertools

import pytest

from e2e.cluster.addresses import INDEXES, NodeAddresses, cgroup_of, choose
from e2e.cluster.errors import ClusterError


def test_addresses_of_the_first_node() -> None:
    """A node's link, addresses and Pod network follow from its index."""
    node = NodeAddresses(3)
    assert (node.link, node.link_cidr, node.host, node.node, node.pod_cidr) == (
        "ebb3",
        "198.51.100.12/30",
        "198.51.100.13",
        "198.51.100.14",
        "10.213.6.0/23",
    )


def test_no_two_nodes_share_an_address() -> None:
    """The networks of all indexes are disjoint, and link names fit the kernel's 15 characters."""
    nodes = [NodeAddresses(index) for index in INDEXES]
    networks = [ipaddress.ip_network(cidr) for node in nodes for cidr in (node.link_cidr, node.pod_cidr)]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(networks, 2))
    assert all(len(node.link) <= 15 for node in nodes)


@pytest.mark.parametrize(
    ("cgroups", "links", "networks", "chosen"),
    [
        ([], [], [], 0),
        ([cgroup_of(0, "aa"), cgroup_of(2, "bb")], [], [], 1),
        ([], ["lo", "ebb0"], [], 1),
        ([], [], ["198.51.100.0/29"], 2),
        ([], [], ["10.213.0.0/24", "10.213.3.7/32"], 2),
        ([], [], ["10.0.0.0/16", "192.168.0.1", "172.17.0.0/16"], 0),
        ([cgroup_of(10, "aa")], [], [], 0),
    ],
    ids=["empty", "cgroups", "link", "link-net", "pod-net", "elsewhere", "ten-is-not-one"],
)
def test_the_lowest_free_index_is_chosen(
    cgroups: list[str], links: list[str], networks: list[str], chosen: int
) -> None:
    """An index is free when no cgroup reserves it, no link has its name and no route overlaps its networks."""
    assert choose(cgroups=cgroups, links=links, networks=networks).index == chosen


def test_no_index_left_says_what_to_do() -> None:
    """With a route over the whole Pod network the message names the networks and the way out."""
    with pytest.raises(ClusterError, match=r"10\.213\.0\.0/17.*take a cluster down"):
        choose(cgroups=[], links=[], networks=["10.0.0.0/8"])
