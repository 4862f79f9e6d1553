"""Node programs: from PATH, or from Debian packages that are unpacked and never installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.cluster import ClusterError, packages
from unit.e2e_cluster.conftest import StandIns

SIMULATION = """\
NOTE: This is only a simulation!
Inst libnftables1 (1.0.6 Debian:12 [amd64])
Inst nftables (1.0.6 Debian:12 [amd64]) []
Inst containernetworking-plugins (1.1.1 Debian:12 [amd64])
Conf nftables (1.0.6 Debian:12 [amd64])
"""

APT = """
import pathlib
if '--simulate' in sys.argv:
    if {lists_needed} and not pathlib.Path('../../../updated').exists():
        print('E: Unable to locate package', file=sys.stderr); sys.exit(100)
    print({simulation!r})
elif 'update' in sys.argv:
    pathlib.Path('../../../updated').touch()
elif 'download' in sys.argv:
    for name in sys.argv[sys.argv.index('download') + 1:]:
        pathlib.Path(name + '_1_amd64.deb').touch()
"""

DPKG = """
import pathlib
root, name = pathlib.Path(sys.argv[3]), pathlib.Path(sys.argv[2]).name
made = {
    'nftables': ['usr/sbin/nft'],
    'libnftables1': ['usr/lib/x86_64-linux-gnu/libnftables.so.1'],
    'containernetworking-plugins': ['usr/lib/cni/ptp', 'usr/lib/cni/host-local', 'usr/lib/cni/loopback'],
}
for path in made[name.partition('_')[0]]:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.touch(); target.chmod(0o755)
"""


def quiet(line: str) -> None:
    del line


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch, stand_ins: StandIns) -> None:
    """A machine that has everything but nft and the CNI plugins."""
    monkeypatch.setattr(packages, "SYSTEM_PATH", ())
    monkeypatch.setattr(packages, "CNI_FOLDERS", ())
    for program in packages.PACKAGE_OF:
        if program != "nft":
            stand_ins.add(program)


def test_nothing_is_fetched_where_everything_is_there(
    stand_ins: StandIns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With every program on PATH and the plugins in a usual folder no package manager is called."""
    stand_ins.add("nft")
    for plugin in packages.CNI_PLUGINS:
        (tmp_path / plugin).touch()
    monkeypatch.setattr(packages, "CNI_FOLDERS", (tmp_path,))
    found = packages.node_programs(quiet)
    assert found.cni == tmp_path
    assert "LD_LIBRARY_PATH" not in found.environment()
    assert stand_ins.calls == []


def test_what_is_missing_is_unpacked_into_the_cache(cache: Path, stand_ins: StandIns) -> None:
    """Missing packages with their dependencies are downloaded and unpacked once; nothing is installed."""
    stand_ins.add("apt-get", APT.format(simulation=SIMULATION, lists_needed=False))
    stand_ins.add("dpkg", DPKG)
    found = packages.node_programs(quiet)
    root = cache / "packages" / "containernetworking-plugins_nftables"
    assert found.which("nft") == str(root / "usr/sbin/nft")
    assert found.which("containerd") == str(stand_ins.folder / "containerd")
    assert found.cni == root / "usr/lib/cni"
    assert found.environment()["LD_LIBRARY_PATH"] == str(root / "usr/lib/x86_64-linux-gnu")
    wanted = ["containernetworking-plugins", "nftables"]
    assert stand_ins.calls_of("apt-get") == [
        ["-q", "--simulate", "--no-install-recommends", "install", *wanted],
        ["-q", "download", "libnftables1", "nftables", "containernetworking-plugins"],
    ]
    assert {call[0] for call in stand_ins.calls_of("dpkg")} == {"-x"}
    before = len(stand_ins.calls)
    assert packages.node_programs(quiet) == found
    assert len(stand_ins.calls) == before


@pytest.mark.usefixtures("cache")
def test_a_new_machine_gets_its_package_lists_first(stand_ins: StandIns) -> None:
    """Where apt knows no such package, the lists are updated once and it is tried again."""
    stand_ins.add("apt-get", APT.format(simulation=SIMULATION, lists_needed=True))
    stand_ins.add("dpkg", DPKG)
    packages.node_programs(quiet)
    verbs = [
        next(word for word in call if word in ("install", "update", "download"))
        for call in stand_ins.calls_of("apt-get")
    ]
    assert verbs == ["install", "update", "install", "download"]


@pytest.mark.usefixtures("cache")
def test_no_way_to_obtain_them_names_them(stand_ins: StandIns) -> None:
    """Without apt-get, and with one that fails, the message names the missing packages."""
    with pytest.raises(ClusterError, match="needs containernetworking-plugins, nftables: none on PATH"):
        packages.node_programs(quiet)
    stand_ins.add("dpkg")
    stand_ins.add("apt-get", "print('E: no network', file=sys.stderr); sys.exit(100)")
    with pytest.raises(
        ClusterError, match=r"(?s)cannot obtain containernetworking-plugins, nftables.*no network"
    ):
        packages.node_programs(quiet)
