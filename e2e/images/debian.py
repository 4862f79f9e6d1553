"""Programs and a root folder from the Debian packages that this machine's own apt is set up to reach.

Nothing is installed here, and no address is written down: mirror and proxy are those of the machine.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.files import Progress, cache_root, locked

from .errors import ImageError

Environment = dict[str, str]


@dataclass(frozen=True)
class Release:
    """The distribution this machine runs, which is the one its apt sources serve."""

    name: str
    """`debian` or a derivative, as /etc/os-release says."""
    codename: str
    architecture: str
    """As Debian and Go both spell it: amd64, arm64."""


def this_release() -> Release:
    """What this machine runs; ImageError where there are no Debian packages to be had."""
    facts = platform.freedesktop_os_release()
    codename = facts.get("VERSION_CODENAME")
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None or not codename:
        raise ImageError(
            "images are made of Debian packages, and this machine has no apt-get: "
            "build them on Debian or Ubuntu, or pull published ones"
        )
    return Release(facts.get("ID", "debian"), codename, _run(["dpkg", "--print-architecture"]).strip())


def unpack(package: str, root: Path, *, progress: Progress) -> None:
    """Download a package and unpack it to `root`; its dependencies and scripts are left alone."""
    downloads = root.with_name(f"{root.name}.deb")
    shutil.rmtree(downloads, ignore_errors=True)
    downloads.mkdir(parents=True)
    root.mkdir(parents=True, exist_ok=True)
    # One user of apt at a time: `apt-get update` fails at once where another one holds its lists.
    lock = cache_root() / "packages" / ".lock"
    with locked(lock, waiting_for=f"the Debian package {package}", progress=progress):
        try:
            _run(["apt-get", "-q", "download", package], folder=downloads)
        except ImageError:
            # A fresh machine has no package lists, and old ones name files that are gone.
            _run(["apt-get", "-q", "update"])
            _run(["apt-get", "-q", "download", package], folder=downloads)
    for archive in downloads.glob("*.deb"):
        _run(["dpkg", "-x", str(archive), str(root)])
    shutil.rmtree(downloads)


def debootstrap(
    root: Path, *, release: Release, include: Sequence[str], scratch: Path, progress: Progress
) -> None:
    """Make `root` a minimal Debian with the packages of `include`, in 40 s or so. Needs root."""
    if os.geteuid() != 0:
        raise ImageError("the Python base image is made with debootstrap, which needs root: run this as root")
    program = shutil.which("debootstrap") or _unpacked_debootstrap(scratch, progress)
    keyrings = Path("/usr/share/keyrings")
    keyring = keyrings / f"{release.name}-archive-keyring.gpg"
    command = [
        # Namespaces of its own, and the death of this process ends it: a build that is killed leaves neither a
        # mount nor a process that still writes into the folder.
        *(
            "setpriv",
            "--pdeathsig=KILL",
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ),
        program,
        *("--variant=minbase", f"--include={','.join(include)}", f"--arch={release.architecture}"),
        *([f"--keyring={keyring}"] if keyring.exists() else []),
        *(release.codename, str(root), mirror(release)),
    ]
    environment = _proxies()
    environment["DEBOOTSTRAP_DIR"] = str(Path(program).parents[1] / "share" / "debootstrap")
    _run(command, environment=environment)


def mirror(release: Release) -> str:
    """The archive this machine's apt takes the release's main component from."""
    # A source names the release by itself; its codename is known only after an `apt-get update`.
    listing = ["apt-get", "indextargets", "--format", "$(RELEASE)|$(CODENAME)|$(COMPONENT)|$(SITE)"]
    found = choose_mirror(_run([*listing, "Created-By: Packages"]), release.codename)
    if found is None:
        raise ImageError(
            f"no http(s) source of this machine's apt serves the main component of {release.codename}: "
            "see /etc/apt/sources.list and /etc/apt/sources.list.d, then run apt-get update"
        )
    return found


def choose_mirror(targets: str, codename: str) -> str | None:
    """The site of the first `release|codename|main|site` line that debootstrap can fetch from."""
    for line in targets.splitlines():
        match line.split("|"):
            case [*names, "main", site] if codename in names and site.startswith(("http:", "https:")):
                return site
    return None


def _unpacked_debootstrap(scratch: Path, progress: Progress) -> str:
    unpack("debootstrap", scratch / "debootstrap", progress=progress)
    return str(scratch / "debootstrap" / "usr" / "sbin" / "debootstrap")


def _proxies() -> Environment:
    """apt's own proxies, as the variables that debootstrap's downloader reads."""
    found = {}
    for scheme in ("http", "https"):
        line = _run(["apt-config", "shell", "VALUE", f"Acquire::{scheme}::Proxy"]).strip()
        if value := line.partition("=")[2].strip("'"):
            found[f"{scheme}_proxy"] = value
    return found


def _run(
    command: Sequence[str], *, folder: Path | None = None, environment: Environment | None = None
) -> str:
    """Run and return what it printed; ImageError with the end of its complaints."""
    answer = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"} | (environment or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        complaint = (answer.stderr.strip() or answer.stdout.strip())[-800:]
        raise ImageError(f"{Path(command[0]).name} failed ({' '.join(command[:4])} …):\n{complaint}")
    return answer.stdout
