"""The recipes follow the sources they are made of, and need nothing that is not there."""

from __future__ import annotations

import ast
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from e2e.images import recipes, wheels
from e2e.images.debian import Release, choose_mirror, this_release
from e2e.images.errors import ImageError
from e2e.images.recipe import layer_keys

RELEASE = Release("debian", "bookworm", "amd64")
ROOT = Path(recipes.__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of what the controller's image is made of."""
    for name in ("pyproject.toml", "README.md", "LICENSE", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name in ("apis", "controller"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(recipes, "ROOT", tmp_path)
    return tmp_path


def controller_keys() -> list[str]:
    return layer_keys(recipes.controller(RELEASE), RELEASE)


def test_a_source_change_renews_the_top_layer_alone(checkout: Path) -> None:
    """An edit of the controller leaves base and dependencies as they are; new pins renew the dependencies."""
    before = controller_keys()
    (checkout / "controller" / "new.py").write_text("x = 1\n")
    edited = controller_keys()
    assert edited[:2] == before[:2]
    assert edited[2] != before[2]
    with (checkout / "constraints.txt").open("a") as file:
        file.write("something==1\n")
    pinned = controller_keys()
    assert pinned[0] == before[0]
    assert pinned[1] != before[1]


def test_compiled_files_are_no_sources(checkout: Path) -> None:
    """What running the controller leaves behind changes no image."""
    before = controller_keys()
    (checkout / "controller" / "__pycache__").mkdir()
    (checkout / "controller" / "__pycache__" / "x.pyc").write_bytes(b"\0")
    assert controller_keys() == before


def test_every_image_but_the_sandbox_lies_on_the_one_base() -> None:
    """The base is made and imported once for all of them, and what needs no root runs without."""
    images = {name: make(RELEASE) for name, make in recipes.IMAGES.items()}
    sandbox = images.pop("sandbox")
    assert {layer_keys(image, RELEASE)[0] for image in images.values()} == {
        layer_keys(images["python-base"], RELEASE)[0]
    }
    for name in ("vllm-router", "sglang-router", "controller"):
        assert images[name].config.user == "65532:65532"
    assert sandbox.config.command == ("/pause",)


def test_the_sample_engine_needs_the_standard_library_alone() -> None:
    """Its image is a Python with its files: every import is relative or of the standard library."""
    for path in (ROOT / "e2e" / "engine").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            outside = [name for name in names if name.split(".")[0] not in sys.stdlib_module_names]
            assert not outside, f"{path.name} imports {outside}"


def test_pause_ends_at_once_when_told(tmp_path: Path) -> None:
    """SIGTERM ends the process that holds a Pod's namespaces with code 0, without its sleep being waited for."""
    (tmp_path / "pause").write_text(recipes.PAUSE)
    process = subprocess.Popen(["sh", str(tmp_path / "pause")], start_new_session=True)
    try:
        time.sleep(0.3)
        assert process.poll() is None
        told = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=5) == 0
        assert time.monotonic() - told < 1
    finally:
        # Its sleep outlives it here, where it is not the first process of a namespace.
        subprocess.run(["kill", "--", f"-{process.pid}"], check=False, capture_output=True)


@pytest.mark.parametrize(
    ("targets", "found"),
    [
        ("bookworm|bookworm|main|http://mirror.test/debian\n", "http://mirror.test/debian"),
        ("bookworm||main|http://mirror.test/debian\n", "http://mirror.test/debian"),
        ("stable|bookworm|main|http://mirror.test/debian\n", "http://mirror.test/debian"),
        (
            "bookworm-security|bookworm-security|main|http://mirror.test/security\n"
            "bookworm|bookworm|main|https://b.test/debian\n",
            "https://b.test/debian",
        ),
        ("bookworm|bookworm|contrib|http://mirror.test/debian\n", None),
        ("bookworm|bookworm|main|file:/srv/debian\n", None),
        ("trixie|trixie|main|http://mirror.test/debian\n", None),
        ("", None),
    ],
)
def test_the_mirror_is_the_one_of_this_machines_apt(targets: str, found: str | None) -> None:
    """Only the main component of the release itself counts, also before any update, and what can be fetched from."""
    assert choose_mirror(targets, "bookworm") == found


def test_a_machine_without_apt_is_told_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where no Debian package can be had the error says what would help."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ImageError, match="no apt-get"):
        this_release()


def test_the_python_of_a_base_is_read_from_its_layer(tmp_path: Path) -> None:
    """`usr/bin/python3.N` names the version wheels are taken for; a layer without one is an error."""
    with tarfile.open(tmp_path / "base.tar", "w") as tar:
        for name in ("usr/bin/python3", "usr/bin/python3.12", "usr/lib/python3.12"):
            tar.addfile(tarfile.TarInfo(name))
    assert wheels.python_version(tmp_path / "base.tar") == "3.12"
    with tarfile.open(tmp_path / "empty.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("bin"))
    with pytest.raises(ImageError, match=r"no usr/bin/python3\.N"):
        wheels.python_version(tmp_path / "empty.tar")


def test_an_architecture_without_wheels_is_refused(tmp_path: Path) -> None:
    """The error names the architectures there are."""
    with pytest.raises(ImageError, match="riscv64: amd64, arm64 are"):
        wheels.install(["x"], tmp_path, python="3.11", architecture="riscv64")


def test_compiled_modules_load_whatever_the_time_of_their_source(tmp_path: Path) -> None:
    """A module compiled for an image is used although its source carries the layer's levelled time."""
    folder = tmp_path / "app"
    folder.mkdir()
    source = folder / "thing.py"
    source.write_text("value = 1\n")
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    wheels.compile_in_place(folder, root=tmp_path, python=python)
    source.write_text("value = 2\n")
    program = "import thing; print(thing.value, thing.__spec__.cached)"
    answer = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=True
    )
    assert answer.stdout.startswith("1 ")
