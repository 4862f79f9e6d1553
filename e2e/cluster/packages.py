"""containerd, runc, nft, the CNI plugins: what stands on PATH, else Debian packages unpacked into the cache.

Nothing is installed: `apt-get install containerd` would remove a user's Docker packages and start services.
`apt-get download` and `dpkg -x` leave the system as it is.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .errors import ClusterError
from .files import Progress, cache_root, locked

PACKAGE_OF: Final = {
    "containerd": "containerd",
    "containerd-shim-runc-v2": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "nft": "nftables",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
}
CNI_PLUGINS: Final = ("ptp", "host-local", "loopback")
CNI_PACKAGE: Final = "containernetworking-plugins"
CNI_FOLDERS: Final = (Path("/opt/cni/bin"), Path("/usr/lib/cni"), Path("/usr/libexec/cni"))

SYSTEM_PATH: Final = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
"""A user's PATH may lack the sbin folders, where nft and ip live."""


@dataclass(frozen=True)
class NodePrograms:
    """Where the node finds its programs."""

    path: tuple[str, ...]
    """Folders to search, in order."""
    libraries: tuple[str, ...]
    """Folders of shared libraries that came with unpacked packages; empty when none did."""
    cni: Path
    """The folder of the CNI plugins."""

    def environment(self) -> dict[str, str]:
        """PATH, and LD_LIBRARY_PATH when there is something to add."""
        variables = {"PATH": os.pathsep.join(self.path)}
        if self.libraries:
            variables["LD_LIBRARY_PATH"] = os.pathsep.join(self.libraries)
        return variables

    def which(self, program: str) -> str:
        found = shutil.which(program, path=os.pathsep.join(self.path))
        if found is None:
            raise ClusterError(f"the program {program} is not there (package {PACKAGE_OF.get(program, '?')})")
        return found


def node_programs(progress: Progress) -> NodePrograms:
    """Every program the node needs; downloads the Debian packages of those that are missing."""
    own_path = [*os.environ.get("PATH", "").split(os.pathsep), *SYSTEM_PATH]
    search = os.pathsep.join(own_path)
    missing = {package for name, package in PACKAGE_OF.items() if shutil.which(name, path=search) is None}
    cni = find_cni(CNI_FOLDERS)
    if cni is None:
        missing.add(CNI_PACKAGE)
    if not missing:
        assert cni is not None
        return NodePrograms(path=tuple(own_path), libraries=(), cni=cni)

    root = _unpacked(sorted(missing), progress)
    folders = [root / "usr/sbin", root / "usr/bin", root / "sbin", root / "bin"]
    cni = cni or find_cni([root / "usr/lib/cni"])
    if cni is None:
        raise ClusterError(f"the package {CNI_PACKAGE} holds no CNI plugins at usr/lib/cni")
    programs = NodePrograms(
        path=(*(str(folder) for folder in folders if folder.is_dir()), *own_path),
        libraries=tuple(str(folder) for folder in sorted(root.glob("**/*-linux-gnu*")) if folder.is_dir()),
        cni=cni,
    )
    for name in PACKAGE_OF:
        programs.which(name)
    return programs


def find_cni(folders: Sequence[Path]) -> Path | None:
    """The first folder that holds every plugin this node uses."""
    return next((folder for folder in folders if all((folder / name).exists() for name in CNI_PLUGINS)), None)


def packages_to_unpack(simulation: str) -> list[str]:
    """Names in the `Inst` lines of `apt-get --simulate install`: what is missing, with its dependencies."""
    return re.findall(r"^Inst (\S+)", simulation, flags=re.MULTILINE)


def _unpacked(packages: Sequence[str], progress: Progress) -> Path:
    root = cache_root() / "packages" / "_".join(packages)
    with locked(cache_root() / "packages" / ".lock", waiting_for="Debian packages", progress=progress):
        if root.is_dir():
            return root
        if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
            raise ClusterError(
                f"the node needs {', '.join(packages)}: none on PATH, and there is no apt-get to fetch them "
                "with. Install them, or use --provider kind"
            )
        progress(f"unpacking Debian packages into the cache (nothing is installed): {', '.join(packages)}")
        scratch = root.with_name(f".unpacking-{root.name}")
        shutil.rmtree(scratch, ignore_errors=True)
        (scratch / "archives").mkdir(parents=True)
        (scratch / "root").mkdir()
        archives = scratch / "archives"
        try:
            _download(packages, archives)
        except subprocess.CalledProcessError:
            progress("  package lists are missing or old: apt-get update")
            # It also fails for one dead archive among many; whether it was enough shows in the next line.
            with suppress(subprocess.CalledProcessError):
                _apt("update", folder=archives)
            try:
                _download(packages, archives)
            except subprocess.CalledProcessError as failure:
                raise ClusterError(
                    f"cannot obtain {', '.join(packages)} from the machine's Debian archive:\n"
                    f"{str(failure.stderr).strip()[-800:]}"
                ) from failure
        for archive in sorted((scratch / "archives").glob("*.deb")):
            subprocess.run(["dpkg", "-x", str(archive), str(scratch / "root")], check=True)
        (scratch / "root").rename(root)
        shutil.rmtree(scratch)
    return root


def _download(packages: Sequence[str], folder: Path) -> None:
    simulation = _apt("--simulate", "--no-install-recommends", "install", *packages, folder=folder)
    _apt("download", *packages_to_unpack(simulation), folder=folder)


def _apt(*arguments: str, folder: Path) -> str:
    # `--simulate` takes no lock; `download` writes into the working folder.
    answer = subprocess.run(
        ["apt-get", "-q", *arguments],
        cwd=folder,
        env=os.environ | {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
        capture_output=True,
        text=True,
        check=True,
    )
    return answer.stdout
