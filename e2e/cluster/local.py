"""A real single node on plain Linux, in namespaces of its own, without a container engine or a registry.

Everything of a node hangs from one process, the first of its pid namespace. As long as `up` has not finished, that
process ends with `up` (see `supervisor.py`); afterwards `down` kills it. What outlives it are the folder with
the state file, a cgroup and, for a moment, a link; the next `up` or `down` of that name takes them away.
"""

from __future__ import annotations

import json
import os
import platform
import secrets
import shutil
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from . import binaries, host, image_archive, packages
from .addresses import NodeAddresses, cgroup_of, choose
from .base import Cluster, Kubectl
from .control_plane_programs import (
    ControlPlaneSpec,
    Program,
    etcd,
    kube_apiserver,
    kube_controller_manager,
    kube_scheduler,
    write_control_plane_files,
    write_kubeconfig,
)
from .errors import ClusterError
from .events import Events
from .files import Progress, locked, write_atomically
from .node_programs import (
    CONTAINERD_SOCKET,
    KUBELET_SYSCTLS,
    MADE_FOLDERS,
    TMPFS,
    NodeSpec,
    node_programs,
    write_node_files,
)
from .pki import identity_file
from .state import State, folder_of, read_state, write_state

if TYPE_CHECKING:
    from e2e.images import BuiltImage

FREE_BYTES: Final = 8 << 30
READY_SECONDS: Final = 180.0
HERE: Final = Path(__file__).parent

_spawned: dict[int, subprocess.Popen[bytes]] = {}
"""The `unshare` processes that this process started, by the pid of their child: theirs to be reaped by it."""


@dataclass(frozen=True)
class LocalCluster(Cluster):
    """A running local node."""

    name: str
    spec: ControlPlaneSpec
    pid: int

    @property
    def kubeconfig(self) -> Path:  # type: ignore[override]
        return self.spec.admin_kubeconfig

    @property
    def audit_log(self) -> Path:  # type: ignore[override]
        return self.spec.audit_log

    @property
    def node_address(self) -> str:  # type: ignore[override]
        return self.spec.address

    @property
    def kubectl_program(self) -> Path:
        return self.spec.binaries / "kubectl"

    def kubectl(self, *args: str, stdin: str | None = None, timeout: float = 60, check: bool = True) -> str:
        run = Kubectl(self.spec.binaries / "kubectl", self.kubeconfig)
        return run(*args, stdin=stdin, timeout=timeout, check=check)

    def load_image(self, archive: Path) -> None:
        load_image(self.spec.directory, self.pid, archive)

    def identity(self, user: str, groups: Sequence[str] = ()) -> Path:
        path = identity_file(self.spec.directory / "identities", user, groups)
        return path if path.exists() else write_kubeconfig(self.spec, path, user=user, groups=groups)

    def pid_of(self, component: str) -> int:
        for pid, argv in host.processes_in_namespace_of(self.pid):
            if Path(argv[0]).name == component:
                return pid
        raise ClusterError(f"no process {component} on the node of cluster {self.name}")


def is_alive(state: State) -> bool:
    return state.pid is not None and host.start_ticks(state.pid) == state.started


def find(name: str, state: State) -> LocalCluster:
    """The running cluster of that name; `ClusterError` when it is not running."""
    if state.phase != "running" or not is_alive(state):
        raise ClusterError(f"the cluster {name} is not running: python -m e2e.cluster up --name {name}")
    assert state.index is not None
    assert state.pid is not None
    folder = folder_of(name)
    built = Path((folder / "binaries").readlink())
    return LocalCluster(name, _control_plane(folder, built, NodeAddresses(state.index)), state.pid)


def check_machine() -> None:
    """`ClusterError` with the way out when this machine cannot carry a node."""
    if platform.system() != "Linux":
        raise ClusterError("--provider local needs Linux; use --provider kind here")
    if os.geteuid() != 0:
        raise ClusterError(
            "--provider local needs root (namespaces, links, mounts); run it with sudo, or use kind"
        )
    parent = next(folder for folder in folder_of("any").parents if folder.exists())
    free = shutil.disk_usage(parent).free
    if free < FREE_BYTES:
        raise ClusterError(
            f"a node needs {FREE_BYTES >> 30} GB free at {parent}; there are {free / 2**30:.1f}"
        )
    for covered in TMPFS:
        if folder_of("any").is_relative_to(covered):
            raise ClusterError(
                f"the cache folder lies below {covered}, which a node covers: set EBB_CACHE elsewhere"
            )


def up(name: str, progress: Progress) -> LocalCluster:
    """Start the node of that name; the caller holds its lock and has cleared what was there before."""
    check_machine()
    built = binaries.ensure("node", progress)
    programs = packages.node_programs(progress)
    sandbox = _sandbox_image(progress)
    began = time.monotonic()
    folder = folder_of(name)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "binaries").symlink_to(built)
    ip = programs.which("ip")
    addresses, state = _reserve(name, ip)
    spec = NodeSpec(
        control_plane=_control_plane(folder, built, addresses),
        node_name=f"{name}-node",
        pod_cidr=addresses.pod_cidr,
        cgroup=f"/{_cgroup(state)}",
        cni_plugins=programs.cni,
        containerd=programs.which("containerd"),
        environment=programs.environment(),
        sandbox_image=sandbox.reference,
    )
    plan_file, expected = _write_plan(spec)
    process = _spawn(plan_file, folder, programs)
    try:
        pid = host.child_of(process.pid)
        _spawned[pid] = process
        started = host.start_ticks(pid)
        write_state(name, state := replace(state, pid=pid, started=started))
        _connect(ip, programs.which("nsenter"), pid, addresses)
        _tell(process, "network")
        _await_ready(spec, pid, expected=expected, sandbox=sandbox, progress=progress)
        write_state(name, replace(state, phase="running"))
        _tell(process, "detach")
    except BaseException:
        clear(name, keep_folder=True)
        raise
    finally:
        assert process.stdin is not None
        process.stdin.close()
    cluster = LocalCluster(name, spec.control_plane, pid)
    progress(
        f"cluster {name} is ready after {time.monotonic() - began:.1f} s: KUBECONFIG={cluster.kubeconfig}"
    )
    return cluster


def clear(name: str, *, keep_folder: bool = False) -> None:
    """Take away whatever there is of the node of that name; the caller holds its lock."""
    state = read_state(name)
    if state is not None and state.pid is not None and state.started is not None:
        host.kill_and_wait(state.pid, state.started)
        if (process := _spawned.pop(state.pid, None)) is not None:
            process.wait()
    if state is not None and state.index is not None and host.holds_cgroup(_cgroup(state)):
        # The index is this cluster's as long as its cgroup stands, so the cgroup goes last.
        host.remove_link(NodeAddresses(state.index).link)
        host.remove_cgroups(_cgroup(state))
    with host.machine_lock():
        if not host.reserved_cgroups():
            for made in MADE_FOLDERS:
                _remove_if_empty(Path(made))
    if not keep_folder:
        shutil.rmtree(folder_of(name), ignore_errors=True)


def load_image(folder: Path, pid: int, archive: Path) -> None:
    """Import an archive into the node's containerd, once per content."""
    marker = folder / "images" / image_archive.identity(archive)
    with locked(
        folder / "images" / ".lock", waiting_for=f"import of {archive.name}", progress=lambda _: None
    ):
        if marker.exists():
            return
        programs = packages.node_programs(lambda _: None)
        # The socket lies in the node's own mount namespace; its root is this way in.
        socket = f"/proc/{pid}/root{CONTAINERD_SOCKET}"
        command = [programs.which("ctr"), "--address", socket, "--namespace", "k8s.io", "images", "import"]
        answer = subprocess.run(
            [*command, str(archive)],
            env=os.environ | programs.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if answer.returncode != 0:
            raise ClusterError(f"import of {archive} failed: {answer.stderr.strip()}")
        marker.touch()


def _sandbox_image(progress: Progress) -> BuiltImage:
    """The image that holds a Pod's namespaces; the node cannot start a Pod without it."""
    # The images lock and cache with this package's files, so they cannot be imported while it is.
    from e2e.images import ImageError, build

    try:
        return build("sandbox", progress)
    except ImageError as failure:
        raise ClusterError(f"the sandbox image cannot be built: {failure}") from failure


def _control_plane(folder: Path, built: Path, addresses: NodeAddresses) -> ControlPlaneSpec:
    return ControlPlaneSpec(directory=folder, binaries=built, address=addresses.node, bind="0.0.0.0")


def _cgroup(state: State) -> str:
    assert state.index is not None
    assert state.tag is not None
    return cgroup_of(state.index, state.tag)


def _reserve(name: str, ip: str) -> tuple[NodeAddresses, State]:
    """Take an index: first on record, then for real, so that no moment leaves a cgroup that nobody knows of."""
    with host.machine_lock():
        links, networks = host.links_and_networks(ip)
        addresses = choose(cgroups=host.reserved_cgroups(), links=links, networks=networks)
        state = State(provider="local", phase="starting", index=addresses.index, tag=secrets.token_hex(4))
        write_state(name, state)
        host.reserve_cgroup(_cgroup(state))
        for made in MADE_FOLDERS:
            Path(made).mkdir(parents=True, exist_ok=True)
    return addresses, state


def _write_plan(spec: NodeSpec) -> tuple[Path, list[str]]:
    """The plan file, and the names of the programs that tell when they are ready."""
    write_control_plane_files(spec.control_plane)
    write_node_files(spec)
    control_plane = spec.control_plane
    programs: list[Program] = [
        etcd(control_plane),
        kube_apiserver(control_plane),
        kube_controller_manager(control_plane),
        kube_scheduler(control_plane),
        *node_programs(spec),
    ]
    plan: dict[str, Any] = {
        "tmpfs": TMPFS,
        "sysctls": KUBELET_SYSCTLS,
        "log_directory": str(spec.directory / "logs"),
        "events": str(spec.directory / "events.jsonl"),
        "programs": [program.as_plan() for program in programs],
    }
    path = spec.directory / "plan.json"
    write_atomically(path, json.dumps(plan, indent=1))
    return path, [program.name for program in programs]


def _spawn(plan_file: Path, folder: Path, programs: packages.NodePrograms) -> subprocess.Popen[bytes]:
    (folder / "logs").mkdir(exist_ok=True)
    namespaces = ["--net", "--pid", "--mount", "--mount-proc", "--fork", "--kill-child"]
    init = [sys.executable, str(HERE / "node_init.py"), str(plan_file)]
    with (folder / "logs" / "node.log").open("ab") as log:
        return subprocess.Popen(
            [programs.which("unshare"), *namespaces, *init],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            # A Ctrl-C at the terminal is for the command there, not for the node.
            start_new_session=True,
        )


def _connect(ip: str, nsenter: str, pid: int, addresses: NodeAddresses) -> None:
    """A link between this machine and the node, the way out of the node, and the way to its Pods."""
    inside = [nsenter, f"--target={pid}", "--net", ip]
    commands = [
        [ip, "link", "add", addresses.link, "type", "veth", "peer", "name", "eth0", "netns", str(pid)],
        [ip, "address", "add", f"{addresses.host}/30", "dev", addresses.link],
        [ip, "link", "set", addresses.link, "up"],
        [*inside, "link", "set", "lo", "up"],
        [*inside, "address", "add", f"{addresses.node}/30", "dev", "eth0"],
        [*inside, "link", "set", "eth0", "up"],
        [*inside, "route", "add", "default", "via", addresses.host],
        [ip, "route", "add", addresses.pod_cidr, "via", addresses.node],
    ]
    for command in commands:
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        if answer.returncode != 0:
            raise ClusterError(f"{' '.join(command)}: {answer.stderr.strip()}")


def _tell(process: subprocess.Popen[bytes], line: str) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(f"{line}\n".encode())
        process.stdin.flush()
    except BrokenPipeError:
        raise ClusterError(
            "the node's first process ended at once; see logs/node.log in its folder"
        ) from None


def _await_ready(
    spec: NodeSpec, pid: int, *, expected: Sequence[str], sandbox: BuiltImage, progress: Progress
) -> None:
    """Until every program is ready, the node is Ready and a Pod in `default` would be admitted."""
    events = Events(spec.directory / "events.jsonl", progress)
    deadline = time.monotonic() + READY_SECONDS
    imported = False
    while True:
        events.read()
        if not imported and "containerd" in events.ready:
            load_image(spec.directory, pid, sandbox.archive)
            imported = True
        missing = [name for name in expected if name not in events.ready]
        if not missing and imported:
            missing = _not_there_yet(spec)
        if not missing:
            return
        if host.start_ticks(pid) is None:
            raise ClusterError(
                f"the node ended while it started:\n{events.tails(spec.directory / 'logs', ['node'])}"
            )
        if time.monotonic() > deadline:
            logs = events.tails(spec.directory / "logs", [*events.troubled, *missing])
            raise ClusterError(
                f"not ready after {READY_SECONDS:.0f} s, waiting for {', '.join(missing)}\n{logs}"
            )
        time.sleep(0.1)


def _not_there_yet(spec: NodeSpec) -> list[str]:
    try:
        node = _get(spec.control_plane, f"/api/v1/nodes/{spec.node_name}")
        conditions = {row["type"]: row["status"] for row in node["status"].get("conditions", [])}
        if conditions.get("Ready") != "True" or node["spec"].get("taints"):
            return ["node Ready"]
        _get(spec.control_plane, "/api/v1/namespaces/default/serviceaccounts/default")
        _get(spec.control_plane, "/api/v1/namespaces/default/configmaps/kube-root-ca.crt")
    except OSError as failure:
        return [f"API ({failure})"]
    return []


def _get(spec: ControlPlaneSpec, path: str) -> dict[str, Any]:
    pki = spec.directory / "pki"
    context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
    with urllib.request.urlopen(f"{spec.server}{path}", timeout=5, context=context) as answer:
        document: dict[str, Any] = json.load(answer)
        return document


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return
