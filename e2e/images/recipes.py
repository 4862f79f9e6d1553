"""The recipes: what is in each image."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

from . import wheels
from .archive import RunConfig
from .debian import Release, debootstrap, unpack
from .errors import ImageError
from .recipe import Image, Layer, Workshop, digest_of_files

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
NOBODY = 65532
"""The user of everything that needs no root; the number that distroless images use too."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENVIRONMENT = {"PATH": PATH, "LANG": "C.UTF-8"}

PAUSE = """#!/bin/sh
# Holds a Pod's namespaces: sleeps until told to end, and reaps what is left to it.
trap 'exit 0' TERM INT
while :; do
    sleep 86400 &
    wait $!
done
"""


def sandbox(release: Release) -> Image:
    """The process that holds a Pod's namespaces. With a shell and the usual tools it serves as a client, too."""
    del release
    layer = Layer("sandbox", fill_sandbox, (PAUSE,))
    return Image((layer,), RunConfig(("/pause",), {"PATH": "/bin"}, user="65535:65535"))


def fill_sandbox(root: Path, workshop: Workshop) -> None:
    unpack("busybox-static", workshop.scratch / "busybox", progress=workshop.progress)
    busybox = next((workshop.scratch / "busybox").glob("**/bin/busybox"))
    (root / "bin").mkdir()
    shutil.copy(busybox, root / "bin" / "busybox")
    listing = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True)
    for tool in listing.stdout.split():
        if tool != "busybox":
            (root / "bin" / tool).symlink_to("busybox")
    _write_program(root / "pause", PAUSE)
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)


def python_base(release: Release) -> Image:
    """A minimal Debian with Python and nothing else: what all other images lie on."""
    return Image((base_layer(),), RunConfig(("python3",), ENVIRONMENT))


def base_layer() -> Layer:
    return Layer("python-base", fill_python_base, keep_times=True)


def fill_python_base(root: Path, workshop: Workshop) -> None:
    workshop.progress("  debootstrap of a minimal Debian with Python, once per machine (under a minute)")
    debootstrap(
        root,
        release=workshop.release,
        include=("python3", "ca-certificates"),
        scratch=workshop.scratch,
        progress=workshop.progress,
    )
    for folder in (
        *("usr/share/doc", "usr/share/man", "usr/share/info", "usr/share/locale", "usr/share/lintian"),
        *("var/cache/apt", "var/lib/apt/lists", "var/log", "var/cache/debconf"),
    ):
        shutil.rmtree(root / folder, ignore_errors=True)
        (root / folder).mkdir(parents=True)
    # What names the machine that built it.
    for name in ("etc/hostname", "etc/resolv.conf", "etc/apt/sources.list", "etc/machine-id"):
        (root / name).unlink(missing_ok=True)
    with (root / "etc" / "passwd").open("a") as file:
        file.write(f"nonroot:x:{NOBODY}:{NOBODY}:nonroot:/nonexistent:/usr/sbin/nologin\n")
    with (root / "etc" / "group").open("a") as file:
        file.write(f"nonroot:x:{NOBODY}:\n")
    (root / "usr" / "local" / "bin" / "python").symlink_to("/usr/bin/python3")


def sample_engine(release: Release) -> Image:
    """The sample engine under the command lines of both real ones, so that Pods rendered for those run it."""
    del release
    sources = _tree("e2e/engine")
    layer = Layer("sample-engine", _engine_filler(sources), (digest_of_files(sources),))
    return Image((base_layer(), layer), RunConfig(("vllm", "serve"), ENVIRONMENT))


def _engine_filler(sources: dict[str, bytes]) -> Callable[[Path, Workshop], None]:
    def fill(root: Path, workshop: Workshop) -> None:
        site = _site_packages(root, workshop)
        for name, content in sources.items():
            _write(site / "sample_engine" / Path(name).relative_to("e2e/engine"), content)
        _write(site / "sglang" / "__init__.py", b"")
        _write(site / "sglang" / "launch_server.py", SGLANG_LAUNCHER.encode())
        _write_program(root / "usr" / "local" / "bin" / "vllm", VLLM_LAUNCHER)
        wheels.compile_in_place(site, root=root, python=workshop.python)

    return fill


SGLANG_LAUNCHER = '''"""The sample engine, started as SGLang is."""

from sample_engine.main import main

if __name__ == "__main__":
    main("sglang")
'''
VLLM_LAUNCHER = '''#!/usr/bin/python3
"""The sample engine, started as vLLM is."""

from sample_engine.main import main

main("vllm")
'''


def vllm_router(release: Release) -> Image:
    """The real vLLM router."""
    return _router("vllm-router", "0.1.17", "from vllm_router.launch_router import main")


def sglang_router(release: Release) -> Image:
    """The real SGLang model gateway."""
    return _router("sglang-router", "0.3.2", "from sglang_router.cli import main")


def _router(package: str, version: str, entry: str) -> Image:
    requirement = f"{package}=={version}"
    constraints = (HERE / "router-constraints.txt").read_text()
    script = f"#!/usr/bin/python3\n{entry}\n\nmain()\n"

    def fill(root: Path, workshop: Workshop) -> None:
        pins = workshop.scratch / "constraints.txt"
        pins.write_text(constraints)
        site = _site_packages(root, workshop)
        workshop.progress(f"  {requirement} from the package index")
        wheels.install(
            [requirement],
            site,
            python=workshop.python,
            architecture=workshop.release.architecture,
            constraints=pins,
        )
        shutil.rmtree(site / "bin", ignore_errors=True)
        _write_program(root / "usr" / "local" / "bin" / package, script)
        wheels.compile_in_place(site, root=root, python=workshop.python)

    layer = Layer(package, fill, (requirement, constraints, script))
    return Image((base_layer(), layer), RunConfig((package,), ENVIRONMENT, user=f"{NOBODY}:{NOBODY}"))


def controller(release: Release) -> Image:
    """Ebb itself: a layer of dependencies that changes with the pins, and one of its own wheel."""
    del release
    project = {name: (ROOT / name).read_bytes() for name in ("pyproject.toml", "README.md", "LICENSE")}
    requirements: list[str] = tomllib.loads(project["pyproject.toml"].decode())["project"]["dependencies"]
    constraints = (ROOT / "constraints.txt").read_text()
    sources = project | _tree("apis") | _tree("controller")

    def fill_dependencies(root: Path, workshop: Workshop) -> None:
        pins = workshop.scratch / "constraints.txt"
        pins.write_text(constraints)
        workshop.progress("  the controller's dependencies from the package index")
        wheels.install(
            requirements,
            root / "app",
            python=workshop.python,
            architecture=workshop.release.architecture,
            constraints=pins,
        )
        shutil.rmtree(root / "app" / "bin", ignore_errors=True)
        wheels.compile_in_place(root / "app", root=root, python=workshop.python)

    def fill_application(root: Path, workshop: Workshop) -> None:
        for name, content in sources.items():
            _write(workshop.scratch / "source" / name, content)
        wheel = wheels.build_wheel(workshop.scratch / "source", workshop.scratch)
        wheels.install(
            [str(wheel)],
            root / "app",
            python=workshop.python,
            architecture=workshop.release.architecture,
            dependencies=False,
        )
        shutil.rmtree(root / "app" / "bin", ignore_errors=True)
        _write_program(root / "usr" / "local" / "bin" / "ebb", EBB)
        wheels.compile_in_place(root / "app", root=root, python=workshop.python)

    return Image(
        (
            base_layer(),
            Layer("controller-dependencies", fill_dependencies, (*requirements, constraints)),
            Layer("controller", fill_application, (digest_of_files(sources), EBB)),
        ),
        RunConfig(
            ("python3", "-m", "controller", "run"),
            ENVIRONMENT | {"PYTHONPATH": "/app"},
            user=f"{NOBODY}:{NOBODY}",
            folder="/app",
        ),
    )


EBB = "#!/usr/bin/python3\nfrom controller.cli.main import main\n\nmain()\n"

IMAGES: dict[str, Callable[[Release], Image]] = {
    "sandbox": sandbox,
    "python-base": python_base,
    "sample-engine": sample_engine,
    "vllm-router": vllm_router,
    "sglang-router": sglang_router,
    "controller": controller,
}


def _tree(folder: str) -> dict[str, bytes]:
    """Every source file under a folder of the repository, by its path there."""
    files = {
        str(path.relative_to(ROOT)): path.read_bytes()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }
    if not files:
        raise ImageError(f"{folder} holds no files: build images from a checkout of the repository")
    return files


def _site_packages(root: Path, workshop: Workshop) -> Path:
    """Where Debian's Python looks for packages that are not Debian's."""
    site = root / "usr" / "local" / "lib" / f"python{workshop.python}" / "dist-packages"
    site.mkdir(parents=True)
    return site


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _write_program(path: Path, text: str) -> None:
    _write(path, text.encode())
    path.chmod(0o755)
