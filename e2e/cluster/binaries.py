"""The Kubernetes programs, built from source once and kept in the cache folder by the hash of their sources.

Two builds of one Go module (`go/kubernetes`): `control-plane` needs no root and runs on any POSIX system,
`node` adds kubelet, kube-proxy and CoreDNS. A `node` build serves for `control-plane` too, so a machine that
runs both links only once. A build from nothing takes about five minutes on two cores.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import threading
import time
from pathlib import Path
from typing import Final, Literal

from . import toolchain
from .errors import ClusterError
from .files import Progress, cache_root, locked

Flavour = Literal["control-plane", "node"]

KUBERNETES_VERSION: Final = "v1.34.4"
SOURCES: Final = Path(__file__).parent / "go" / "kubernetes"
PROGRESS_SECONDS: Final = 10.0

CONTROL_PLANE_PROGRAMS: Final = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
)
PROGRAMS: Final[dict[Flavour, tuple[str, ...]]] = {
    "control-plane": CONTROL_PLANE_PROGRAMS,
    "node": (*CONTROL_PLANE_PROGRAMS, "kubelet", "kube-proxy", "coredns"),
}


def find(flavour: Flavour) -> Path | None:
    """The folder of finished programs, one link per name; None when they are not built yet."""
    serves: tuple[Flavour, ...] = ("node",) if flavour == "node" else ("node", "control-plane")
    for candidate in serves:
        folder = _folder(candidate)
        if folder.is_dir():
            return folder
    return None


def ensure(flavour: Flavour, progress: Progress) -> Path:
    """The folder of finished programs, building them first when need be. Shows progress while it builds."""
    if (folder := find(flavour)) is not None:
        return folder
    bin_root = cache_root() / "bin"
    with locked(bin_root / ".lock", waiting_for=f"the {flavour} build", progress=progress):
        if (folder := find(flavour)) is not None:
            return folder
        folder = _folder(flavour)
        scratch = bin_root / f".building-{folder.name}"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        _build(flavour, scratch / "kubernetes", progress)
        for program in PROGRAMS[flavour]:
            (scratch / program).symlink_to("kubernetes")
        scratch.rename(folder)
    return folder


def build_command(go: Path, flavour: Flavour, output: Path) -> list[str]:
    """The `go build` line. Both version packages are set, else version checks between programs fail."""
    major, minor = KUBERNETES_VERSION.removeprefix("v").split(".")[:2]
    facts = {"gitVersion": KUBERNETES_VERSION, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    stamps = [
        f"-X {package}.{name}={value}"
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
        for name, value in facts.items()
    ]
    tags = ["-tags", "node"] if flavour == "node" else []
    linker = " ".join(["-s -w", *stamps])
    reproducible = ["-mod=readonly", "-buildvcs=false", "-trimpath"]
    return [str(go), "build", "-v", *reproducible, *tags, "-ldflags", linker, "-o", str(output), "."]


def _folder(flavour: Flavour) -> Path:
    return cache_root() / "bin" / f"{flavour}-{_fingerprint(flavour)}"


def _fingerprint(flavour: Flavour) -> str:
    digest = hashlib.sha256(" ".join(build_command(Path("go"), flavour, Path("out"))).encode())
    for source in sorted(SOURCES.iterdir()):
        digest.update(f"\n{source.name}\n".encode())
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _build(flavour: Flavour, output: Path, progress: Progress) -> None:
    go = toolchain.find_go(progress)
    if shutil.disk_usage(output.parent).free < 5 << 30:
        raise ClusterError(f"the {flavour} build needs 5 GB free below {output.parent}; there is less")
    progress(f"building the {flavour} programs of Kubernetes {KUBERNETES_VERSION} with {go} (minutes, once)")
    began = time.monotonic()
    compiled: list[str] = []
    other: list[str] = []
    process = subprocess.Popen(
        build_command(go, flavour, output),
        cwd=SOURCES,
        env=toolchain.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    stderr = process.stderr

    def read() -> None:
        for line in stderr:
            # `go build -v` names a package when it is done with it; everything else has a blank or a colon.
            name = line.strip()
            (other if " " in name or ":" in name else compiled).append(name)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        while True:
            try:
                process.wait(PROGRESS_SECONDS)
                break
            except subprocess.TimeoutExpired:
                last = compiled[-1] if compiled else (other[-1] if other else "reading modules")
                seconds = time.monotonic() - began
                progress(f"  {seconds:4.0f} s: {len(compiled)} packages compiled, last {last}")
    except BaseException:
        process.kill()
        process.wait()
        raise
    reader.join(5)
    if process.returncode != 0:
        raise ClusterError(f"the {flavour} build failed:\n" + "\n".join(other[-30:]))
    size = output.stat().st_size / 1e6
    progress(f"built the {flavour} programs in {time.monotonic() - began:.0f} s ({size:.0f} MB)")
