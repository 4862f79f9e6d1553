"""The local node itself: what it offers, that several stand side by side, and that nothing of one is left."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from e2e.cluster import Cluster, ClusterError, down, fresh_cluster, get_cluster, up
from e2e.cluster.host import hierarchies, reserved_cgroups, start_ticks, wait_until
from e2e.cluster.local import LocalCluster
from e2e.cluster.packages import node_programs
from e2e.cluster.providers import default_provider
from e2e.cluster.state import folder_of, known_names, lock_of, read_state
from e2e.images import build

pytestmark = pytest.mark.cluster

SIDE_BY_SIDE = ("suite-a", "suite-b")
KILLED = "suite-killed"
NAMES = (*SIDE_BY_SIDE, KILLED)


@pytest.fixture(autouse=True, scope="module")
def local_nodes() -> Iterator[None]:
    """Only a local node leaves traces on this machine; kind looks after its own."""
    try:
        provider, _ = default_provider()
    except ClusterError as error:
        pytest.skip(str(error))
    if provider != "local":
        pytest.skip("kind is the provider here")
    yield
    for name in NAMES:
        down(name, quiet)


def quiet(line: str) -> None:
    del line


def traces() -> dict[str, list[str]]:
    """Everything of a node that this machine would show, other than processes, and without other clusters'."""
    programs = node_programs(quiet)
    others = [read_state(name) for name in known_names() if name not in NAMES]
    foreign = re.compile(
        "|".join(["(?!)", *(rf"\bebb{state.index}\b" for state in others if state is not None)])
    )

    def ask(program: str, *arguments: str) -> list[str]:
        command = [programs.which(program), *arguments]
        environment = os.environ | programs.environment()
        return sorted(subprocess.check_output(command, text=True, env=environment).splitlines())

    folders = ["/run/netns", "/var/log/pods", "/var/log/containers", "/usr/libexec/kubernetes"]
    own = [path for name in NAMES for path in (str(folder_of(name)), str(lock_of(name)))]
    if not reserved_cgroups():
        folders += ["/var/lib/cni", "/var/lib/kubelet"]
    found = {
        "links": sorted(path.name for path in Path("/sys/class/net").iterdir()),
        "addresses": ask("ip", "-brief", "-4", "address", "show"),
        "routes": ask("ip", "-4", "route", "show", "table", "all"),
        "nft tables": ask("nft", "list", "tables"),
        "mounts": sorted(Path("/proc/mounts").read_text().splitlines()),
        "cgroups": sorted(
            str(path)
            for root in hierarchies()
            for pattern in ("ebb*", "k8s.io")
            for path in root.glob(pattern)
        ),
        "sysctls": [Path("/proc/sys", name).read_text() for name in ("vm/overcommit_memory", "kernel/panic")],
        "folders": [folder for folder in folders + own if Path(folder).exists()],
    }
    return {kind: [row for row in rows if not foreign.search(row)] for kind, rows in found.items()}


def processes_below(pid: int) -> dict[int, int]:
    """Every descendant of a process, containers included: pid → start time."""
    found: dict[int, int] = {}
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        if (ticks := start_ticks(parent)) is not None:
            found[parent] = ticks
            tasks = Path(f"/proc/{parent}/task").glob("*/children")
            waiting += [int(child) for task in tasks for child in task.read_text().split()]
    return found


def survivors(processes: dict[int, int]) -> list[int]:
    return [pid for pid, started in processes.items() if start_ticks(pid) == started]


def pod(name: str, image: str, *command: str) -> dict[str, object]:
    container = {"name": "main", "image": image, "imagePullPolicy": "Never", "command": list(command)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
    }


def service(name: str, **more: object) -> dict[str, object]:
    spec = {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}], **more}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def use(cluster: Cluster) -> None:
    """Run a server and a client Pod and talk between them by ClusterIP and by headless name."""
    image = build("sandbox", quiet).reference
    serve = f"echo hello from {cluster.name} > /tmp/index.html; exec httpd -f -p 8080 -h /tmp"
    objects = [
        pod("web", image, "sh", "-c", serve),
        pod("client", image, "sleep", "3600"),
        service("web"),
        service("web-headless", clusterIP="None"),
    ]
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    cluster.kubectl("apply", "-f", "-", stdin=listed)
    cluster.kubectl("wait", "--for=condition=Ready", "pod/web", "pod/client", "--timeout=60s", timeout=70)
    expected = f"hello from {cluster.name}\n"
    for url in ("http://web.default.svc.cluster.local", "http://web-headless.default.svc.cluster.local:8080"):
        # A fresh Service takes a moment to reach kube-proxy and CoreDNS.
        assert wait_until(lambda url=url: fetch(cluster, url) == expected, timeout=15), url  # type: ignore[misc]
    address = cluster.kubectl("get", "pod", "web", "-o", "jsonpath={.status.podIP}")
    from_here = subprocess.check_output([sys.executable, "-c", FETCH, f"http://{address}:8080/"], text=True)
    assert from_here == expected


FETCH = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=5).read().decode(), end='')"


def fetch(cluster: Cluster, url: str) -> str:
    return cluster.kubectl("exec", "client", "--", "wget", "-q", "-O", "-", url, check=False)


def test_two_nodes_side_by_side_serve_pods_and_leave_nothing() -> None:
    """Two nodes are Ready within a minute, run Pods with exec, ClusterIP and DNS, and `down` leaves nothing."""
    before = traces()
    began = time.monotonic()
    with ThreadPoolExecutor() as pool:
        clusters = list(pool.map(lambda name: up(name, "local", quiet), SIDE_BY_SIDE))
        assert time.monotonic() - began < 60
        assert len({cluster.node_address for cluster in clusters}) == 2
        list(pool.map(use, clusters))

    said: list[str] = []
    assert up("suite-a", progress=said.append).node_address == clusters[0].node_address
    assert said == ["cluster suite-a is already running (local)"]
    with pytest.raises(ClusterError, match="in use by a cluster of provider local"):
        up("suite-a", "kind", quiet)

    check_identity_and_audit(clusters[0])
    check_processes(clusters[0])

    # What `down` has to take away is seen at all.
    during = traces()
    assert {"links", "addresses", "routes", "cgroups", "folders"} <= {
        key for key in before if during[key] != before[key]
    }

    processes: dict[int, int] = {}
    for cluster in clusters:
        assert isinstance(cluster, LocalCluster)
        processes |= processes_below(cluster.pid)
    # Two Pods with a sandbox each, a containerd shim for both, and the node's programs.
    assert len(processes) > 2 * 14
    for name in SIDE_BY_SIDE:
        down(name, quiet)
    assert survivors(processes) == []
    assert traces() == before
    with pytest.raises(ClusterError, match="no cluster suite-a"):
        get_cluster("suite-a")


def check_identity_and_audit(cluster: Cluster) -> None:
    """A made-up identity is who it says, has no rights of its own, and the audit log shows what it tried."""
    mine = cluster.identity("some-controller", ["testers"])
    assert mine == cluster.identity("some-controller", ["testers"])
    assert mine != cluster.identity("some-controller")
    uid = cluster.kubectl("get", "pod", "web", "-o", "jsonpath={.metadata.uid}")
    body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}}
    answer = cluster.kubectl(
        *("--kubeconfig", str(mine), "delete", "--raw", "/api/v1/namespaces/default/pods/web", "-f", "-"),
        stdin=json.dumps(body),
        check=False,
    )
    assert answer == ""
    assert cluster.audit_log is not None
    events = [json.loads(line) for line in cluster.audit_log.read_text().splitlines()]
    tried = [
        event
        for event in events
        if event["user"]["username"] == "some-controller" and event["verb"] == "delete"
    ]
    assert [event["responseStatus"]["code"] for event in tried] == [403]
    assert "testers" in tried[0]["user"]["groups"]
    assert any(event["objectRef"].get("subresource") == "exec" for event in events if "objectRef" in event)


def check_processes(cluster: Cluster) -> None:
    """Every program of the node is found by name, and one that dies comes back."""
    for component in ("etcd", "kube-apiserver", "kubelet", "containerd", "kube-proxy", "coredns"):
        assert start_ticks(cluster.pid_of(component)) is not None
    first = cluster.pid_of("kube-scheduler")
    os.kill(first, signal.SIGKILL)

    def another() -> bool:
        try:
            return cluster.pid_of("kube-scheduler") != first
        except ClusterError:
            return False

    assert wait_until(another, timeout=15)


@pytest.mark.parametrize("moment", ["reserved", "etcd is ready", "kubelet is ready"])
def test_an_up_killed_half_way_dies_with_its_node_and_the_next_up_succeeds(moment: str) -> None:
    """`kill -9` of an `up` ends its node at once; the next `up` clears the rest and is Ready, `down` leaves nothing."""
    before = traces()
    command = [sys.executable, "-m", "e2e.cluster", "up", "--provider", "local", "--name", KILLED]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    if moment == "reserved":
        assert wait_until(
            lambda: (state := read_state(KILLED)) is not None and state.index is not None,
            timeout=60,
            pause=0.001,
        )
    else:
        assert any(moment in line for line in process.stderr)
    processes = processes_below(process.pid)
    process.kill()
    process.wait()
    assert wait_until(lambda: survivors(processes) == [], timeout=10)

    cluster = up(KILLED, "local", quiet)
    assert "suite-killed-node" in cluster.kubectl("get", "nodes")
    down(KILLED, quiet)
    assert traces() == before


def test_a_killed_suite_leaves_a_cluster_that_the_next_one_replaces() -> None:
    """After a suite was killed, `fresh_cluster` gives an empty node of the same name and takes it down."""
    before = traces()
    script = "from e2e.cluster import up\n" + "\n".join(
        (
            f"up({KILLED!r}, 'local').kubectl('create', 'namespace', 'left-over')",
            "print('in it', flush=True)",
            "input()",
        )
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as suite:
        assert suite.stdout is not None
        assert any(line == "in it\n" for line in suite.stdout)
        suite.kill()
    assert "left-over" in get_cluster(KILLED).kubectl("get", "namespaces")
    with fresh_cluster(KILLED, "local", quiet) as cluster:
        assert "left-over" not in cluster.kubectl("get", "namespaces")
    assert traces() == before
