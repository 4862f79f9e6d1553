"""The rules behind the rendered Pod, each shown by what it changes."""

from __future__ import annotations

from typing import Any

import pytest

from apis.v1alpha1 import labels
from controller.engines.gauges import accepted_names
from controller.pod_renderer.hash import pod_hash
from unit.pod_renderer.specs import hook_command, main, pod

TLS = ["--ssl-certfile", "/tls/tls.crt"]


@pytest.mark.parametrize(
    ("engine", "port", "extra", "url"),
    [
        ("vLLM", 8000, [], "http://127.0.0.1:8000/metrics"),
        ("SGLang", 8000, [], "http://127.0.0.1:8000/metrics"),
        ("vLLM", 8443, TLS, "https://127.0.0.1:8443/metrics"),
        ("SGLang", 8443, ["--ssl-keyfile=/k"], "https://127.0.0.1:8443/metrics"),
    ],
)
def test_hook_reads_the_annotated_listener(engine: str, port: int, extra: list[str], url: str) -> None:
    """J1 The hook's URL is the scrape annotations', with this engine's gauges alone, and on `main` alone."""
    init = [{"name": "fetch", "image": "fetch:1"}]
    ports = [{"name": "web", "port": port}]
    rendered = pod(engine=engine, extraArgs=extra, initContainers=init, ports=ports)
    notes = rendered["metadata"]["annotations"]
    annotated = (
        f"{notes[labels.SCRAPE_SCHEME]}://127.0.0.1:{notes[labels.SCRAPE_PORT]}{notes[labels.SCRAPE_PATH]}"
    )
    python, flag, _, hook_url, grace, *gauges = hook_command(rendered)
    assert (python, flag, grace) == ("python3", "-c", "30")
    assert hook_url == annotated == url
    assert tuple(gauges) == accepted_names(engine)
    assert rendered["spec"]["initContainers"] == init


@pytest.mark.parametrize(("given", "grace"), [(None, 30), (15, 15), (45, 45), (3600, 3600)])
def test_grace_of_a_managed_role(given: int | None, grace: int) -> None:
    """J2 A managed Pod always names its grace, 30 unless set, and its hook is told the same number."""
    rendered = pod(**({} if given is None else {"terminationGracePeriodSeconds": given}))
    assert rendered["spec"]["terminationGracePeriodSeconds"] == grace
    assert hook_command(rendered)[4] == str(grace)


def test_grace_of_a_takeover_role() -> None:
    """J2 A take-over role has the grace it names or none, and no hook."""
    unset = pod(command=["serve"])
    named = pod(command=["serve"], terminationGracePeriodSeconds=60)
    assert "terminationGracePeriodSeconds" not in unset["spec"]
    assert named["spec"]["terminationGracePeriodSeconds"] == 60
    assert "lifecycle" not in main(unset)
    assert "lifecycle" not in main(named)


@pytest.mark.parametrize("role", [{}, {"command": ["serve"]}])
def test_writing_the_default_grace_keeps_the_hash(role: dict[str, Any]) -> None:
    """J2 Writing 30 where nothing stood is no new Pod; 31 is."""
    unset, thirty, other = (
        pod(**role, **grace)
        for grace in ({}, {"terminationGracePeriodSeconds": 30}, {"terminationGracePeriodSeconds": 31})
    )
    assert pod_hash(unset) == pod_hash(thirty)
    assert pod_hash(unset) != pod_hash(other)


@pytest.mark.parametrize(
    "role",
    [
        {"command": ["serve"]},
        {"extraArgs": ["--port", "9000"]},
        {"extraArgs": ["--port=9000"]},
        {"extraArgs": ["--host", "127.0.0.1"]},
        {"extraArgs": [*TLS, "--ssl-cert-reqs", "2"]},
        {"extraArgs": [*TLS, "--ssl_cert_reqs=2"]},
        {"extraArgs": [*TLS, "--ssl-cert-reqs", "0", "--ssl-cert-reqs", "2"]},
        {"extraArgs": [*TLS, "--ssl-cert-reqs", "$(REQS)"]},
        {"ports": [{"name": "quic", "port": 8000, "protocol": "UDP"}]},
        {"ports": [{"name": "assoc", "port": 8000, "protocol": "SCTP"}]},
    ],
)
def test_no_probe_where_it_could_only_be_wrong(role: dict[str, Any]) -> None:
    """A probe that cannot reach the engine would restart a healthy one, so none is rendered."""
    assert not [key for key in main(pod(**role)) if key.endswith("Probe")]


@pytest.mark.parametrize(
    ("extra", "scheme"),
    [
        ([], "HTTP"),
        (TLS, "HTTPS"),
        (["--ssl_keyfile", "/k"], "HTTPS"),
        (["--ssl-certf=/c"], "HTTPS"),
        ([*TLS, "--ssl-cert-reqs", "1"], "HTTPS"),
        ([*TLS, "--ssl-cert-reqs", "2", "--ssl-cert-reqs=0"], "HTTPS"),
        (["--ssl-cert-reqs", "2"], "HTTP"),
        (["--ssl-ca-certs", "/ca"], "HTTP"),
        (["--ssl-keyfile-password", "x"], "HTTP"),
    ],
)
def test_only_a_certificate_or_key_makes_it_https(extra: list[str], scheme: str) -> None:
    """Probes speak TLS when a certificate or a key is given, and by no other flag."""
    rendered = main(pod(extraArgs=extra))
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert rendered[probe]["httpGet"] == {"path": "/health", "port": 8000, "scheme": scheme}


def test_an_abbreviated_listener_flag_is_outvoted() -> None:
    """`--po 9000` does not move the engine: the whole flag stands behind it and argparse takes the last."""
    rendered = main(pod(extraArgs=["--po", "9000"]))
    assert rendered["command"][-2:] == ["--port", "8000"]
    assert "readinessProbe" in rendered


@pytest.mark.parametrize(("startup", "liveness"), [(60, 30), (61, 31), (14400, 3600)])
def test_probe_windows_cover_the_seconds_asked_for(startup: int, liveness: int) -> None:
    """A start gets at least startupSeconds, a quiet engine at least livenessSeconds, and less than a period more."""
    rendered = main(pod(startupSeconds=startup, livenessSeconds=liveness))
    for probe, seconds in (("startupProbe", startup), ("livenessProbe", liveness)):
        window = rendered[probe]["periodSeconds"] * rendered[probe]["failureThreshold"]
        assert seconds <= window < seconds + rendered[probe]["periodSeconds"]


@pytest.mark.parametrize("path", ["/dev/shm", "/dev/shm/", "/dev//shm", "/dev/./shm"])
def test_the_users_shm_takes_the_place_of_ours(path: str) -> None:
    """A mount of the user's on /dev/shm, however it is spelled, is the only one there."""
    rendered = pod(
        volumes=[{"name": "mine", "emptyDir": {}}], volumeMounts=[{"name": "mine", "mountPath": path}]
    )
    assert [volume["name"] for volume in rendered["spec"]["volumes"]] == ["mine"]
    assert main(rendered)["volumeMounts"] == [{"name": "mine", "mountPath": path}]


def test_a_mount_below_shm_leaves_ours() -> None:
    """A mount at /dev/shm/cache does not stand for /dev/shm."""
    rendered = pod(
        volumes=[{"name": "mine", "emptyDir": {}}],
        volumeMounts=[{"name": "mine", "mountPath": "/dev/shm/cache"}],
    )
    assert {"name": "ebb-shm", "mountPath": "/dev/shm"} in main(rendered)["volumeMounts"]


def test_no_api_token_without_a_service_account() -> None:
    """An engine gets no API token unless a service account is named; then the account decides."""
    assert pod()["spec"]["automountServiceAccountToken"] is False
    named = pod(serviceAccountName="engine")["spec"]
    assert "automountServiceAccountToken" not in named
    assert named["serviceAccountName"] == "engine"


def test_the_users_labels_do_not_displace_ours() -> None:
    """Where a label of the user's has the name of one of ours, ours stands."""
    rendered = pod(
        podLabels={labels.INSTANCE: "other", "team": "nlp"}, podAnnotations={labels.SCRAPE_PORT: "1"}
    )
    assert rendered["metadata"]["labels"][labels.INSTANCE] == "chat"
    assert rendered["metadata"]["labels"]["team"] == "nlp"
    assert rendered["metadata"]["annotations"][labels.SCRAPE_PORT] == "8000"
