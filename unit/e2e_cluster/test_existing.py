"""A cluster of somebody else's, through a stand-in of kubectl."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.cluster import ClusterError, down, up
from e2e.cluster.state import folder_of
from unit.e2e_cluster.conftest import StandIns

pytestmark = pytest.mark.usefixtures("built")


def test_a_context_that_was_not_named_is_refused(stand_ins: StandIns) -> None:
    """Without --context nothing is asked of any cluster: the current one may be production."""
    with pytest.raises(ClusterError, match="needs --context NAME"):
        up("ebb", "existing", lambda _: None)
    assert stand_ins.calls == []
    assert not folder_of("ebb").exists()


def test_the_named_context_is_the_only_one_copied(stand_ins: StandIns) -> None:
    """Our kubeconfig is the user's reduced to the named context."""
    cluster = up("ebb", "existing", lambda _: None, context="staging")
    view, nodes = stand_ins.calls_of("kubectl")
    assert view == ["config", "view", "--raw", "--minify", "--flatten", "--context=staging"]
    assert nodes[0] == f"--kubeconfig={cluster.kubeconfig}"
    assert "--context=staging" in nodes
    assert cluster.node_address == "172.18.0.2"
    assert cluster.audit_log is None


def test_what_cannot_be_done_there_says_so(tmp_path: Path) -> None:
    """Images cannot be loaded and processes cannot be found; both say why."""
    cluster = up("ebb", "existing", lambda _: None, context="staging")
    with pytest.raises(ClusterError, match="push the image to a registry"):
        cluster.load_image(tmp_path / "image.tar")
    with pytest.raises(ClusterError, match="does not run on this machine"):
        cluster.pid_of("kubelet")


def test_down_leaves_the_cluster_alone(stand_ins: StandIns) -> None:
    """`down` forgets the context and asks nothing of the cluster."""
    up("ebb", "existing", lambda _: None, context="staging")
    before = stand_ins.calls
    down("ebb", lambda _: None)
    assert stand_ins.calls == before
    assert not folder_of("ebb").exists()
