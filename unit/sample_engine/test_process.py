"""The sample engine as a process: it streams, counts, ends and fails as it should. Time is the subject here."""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from unit.sample_engine.process import SGLANG, VLLM, EngineProcess, engine

RUNNING = {"vllm": "vllm:num_requests_running", "sglang": "sglang:num_running_reqs"}


@pytest.fixture(scope="module")
def healthy() -> Iterator[EngineProcess]:
    """One engine for the tests that leave it as it was."""
    with engine(*VLLM) as process:
        yield process


def open_stream(process: EngineProcess, *, seconds: float, tokens: int = 20) -> http.client.HTTPResponse:
    """A stream that has begun: its first line has been read."""
    connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=20)
    body = {"model": "tiny", "prompt": "x", "max_tokens": tokens, "seconds": seconds, "stream": True}
    connection.request("POST", "/v1/completions", json.dumps(body))
    answer = connection.getresponse()
    assert answer.readline().startswith(b"data:")
    return answer


def ask_again(connection: http.client.HTTPConnection) -> None:
    connection.request("GET", "/health")
    connection.getresponse()


def data(text: str) -> list[str]:
    return [line.removeprefix("data: ") for line in text.splitlines() if line]


def eventually(what: str, holds: Callable[[], bool], *, seconds: float) -> float:
    """Wait until it holds; how long that took."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < seconds, f"{what}: not within {seconds:g} s"
        time.sleep(0.02)
    return time.monotonic() - began


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/v1/completions", "text_completion"), ("/v1/chat/completions", "chat.completion.chunk")],
)
def test_a_stream_has_its_chunks_its_pace_and_its_pod(healthy: EngineProcess, path: str, kind: str) -> None:
    """`max_tokens` chunks over the seconds asked for, each naming model and Pod, the last its reason; then [DONE]."""
    began = time.monotonic()
    request = urllib.request.Request(
        healthy.url + path,
        json.dumps({"model": "tiny", "max_tokens": 5, "seconds": 0.5, "stream": True}).encode(),
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        assert answer.headers["x-engine-pod"] == "pod-0"
        *chunks, mark = data(answer.read().decode())
    took = time.monotonic() - began
    assert mark == "[DONE]"
    parsed = [json.loads(chunk) for chunk in chunks]
    assert [chunk["pod"] for chunk in parsed] == ["pod-0"] * 5
    assert {chunk["object"] for chunk in parsed} == {kind}
    assert {chunk["model"] for chunk in parsed} == {"tiny"}
    assert [chunk["choices"][0]["finish_reason"] for chunk in parsed] == [None] * 4 + ["length"]
    assert 0.5 <= took < 2.5


def test_an_answer_in_one_piece_names_its_pod(healthy: EngineProcess) -> None:
    """Without `stream` the whole text comes at once, with its usage and its Pod."""
    answer = healthy.post("/v1/completions", {"model": "tiny", "max_tokens": 3, "tokens_per_second": 30})
    assert answer["choices"][0]["text"] == " t1 t2 t3"
    assert (answer["pod"], answer["usage"]["completion_tokens"]) == ("pod-0", 3)
    chat = healthy.post("/v1/chat/completions", {"model": "tiny", "max_tokens": 1, "seconds": 0})
    assert chat["choices"][0]["message"] == {"role": "assistant", "content": " t1"}


def test_it_answers_what_routers_and_probes_ask(healthy: EngineProcess) -> None:
    """Health, models and unknown paths get the real engines' statuses; a request that cannot be read is a 400."""
    assert healthy.get("/health") == ""
    assert json.loads(healthy.get("/v1/models"))["data"][0]["id"] == "tiny"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        healthy.get("/nothing")
    with pytest.raises(urllib.error.HTTPError, match="400"):
        healthy.post("/v1/completions", {"max_tokens": "many"})


@pytest.mark.parametrize(("flavour", "arguments"), [("vllm", VLLM), ("sglang", SGLANG)])
def test_the_gauge_follows_a_request_at_once(flavour: str, arguments: tuple[str, ...]) -> None:
    """A stream shows in the running gauge as soon as it has begun, and is out of it when it has ended."""
    with engine(*arguments) as process:
        answer = open_stream(process, seconds=0.8)
        assert process.gauge(RUNNING[flavour]) == 1
        assert answer.read().endswith(b"[DONE]\n\n")
        assert process.gauge(RUNNING[flavour]) == 0


def test_a_request_without_a_slot_waits() -> None:
    """With one slot the second request is counted as waiting and is served after the first."""
    with engine(*VLLM, "--max-num-seqs", "1") as process:
        first = open_stream(process, seconds=1.0)
        texts: list[str] = []
        second = threading.Thread(
            target=lambda: texts.append(open_stream(process, seconds=0.1).read().decode())
        )
        second.start()
        eventually("a request waits", lambda: process.gauge("vllm:num_requests_waiting") == 1, seconds=0.8)
        assert process.gauge("vllm:num_requests_running") == 1
        first.read()
        second.join(10)
        assert texts
        assert texts[0].endswith("[DONE]\n\n")


def test_a_client_that_hangs_up_is_counted_down() -> None:
    """An engine drops a request whose client left, long before its next token is due, and its log says so."""
    with engine(*VLLM) as process:
        answer = open_stream(process, seconds=20, tokens=2000)
        answer.close()
        eventually("it is gone", lambda: process.gauge(RUNNING["vllm"]) == 0, seconds=2)
        assert process.wait_event("abort")["request"] == "pod-0-1"


def test_sigterm_cuts_streams_as_vllm_does() -> None:
    """Every open stream is reset at once, the port is closed, and the process ends with 0 about 2 s later."""
    with engine(*VLLM) as process:
        answers = [open_stream(process, seconds=20, tokens=200) for _ in range(3)]
        idle = http.client.HTTPConnection("127.0.0.1", process.port, timeout=5)
        idle.request("GET", "/health")
        idle.getresponse().read()
        process.terminate()
        for answer in answers:
            with pytest.raises((ConnectionResetError, http.client.IncompleteRead)):
                answer.read()
        # A connection that was kept open must not get another answer either.
        with pytest.raises(ConnectionError):
            ask_again(idle)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", process.port), timeout=5)
        assert process.wait() == 0
        told = process.wait_event("sigterm")
        aborts = [event for event in process.events if event["event"] == "abort"]
        assert told["in_flight"] == len(aborts) == 3
        assert all(event["unix"] - told["unix"] < 0.25 for event in aborts)
        assert 1.9 <= process.wait_event("exit")["unix"] - told["unix"] < 3.5
        assert process.complaint() == ""


def test_sigterm_lets_streams_end_as_sglang_does() -> None:
    """It goes on serving, new requests too, until nothing runs; only then it ends."""
    with engine(*SGLANG) as process:
        answer = open_stream(process, seconds=1.5)
        process.terminate()
        process.wait_event("sigterm")
        late = process.post("/v1/completions", {"model": "tiny", "max_tokens": 1, "seconds": 0.1})
        assert late["pod"] == "pod-0"
        assert answer.read().endswith(b"[DONE]\n\n")
        assert process.wait() == 0
        assert not [event for event in process.events if event["event"] == "abort"]


def test_the_way_to_end_can_be_chosen() -> None:
    """SAMPLE_ENGINE_SIGTERM makes a vLLM that lets its streams end."""
    with engine(*VLLM, SAMPLE_ENGINE_SIGTERM="serve") as process:
        answer = open_stream(process, seconds=0.8)
        process.terminate()
        assert answer.read().endswith(b"[DONE]\n\n")
        assert process.wait() == 0


def test_it_listens_only_after_its_start_up() -> None:
    """An engine told to load for a second refuses connections until then, and ends at once when told to."""
    with engine(*VLLM, faults={"start_seconds": 1.0}) as process:
        began = process.wait_event("start")["unix"]
        assert process.wait_event("ready")["unix"] - began >= 1.0
    with engine(*VLLM, faults={"start_seconds": 60}) as process:
        process.wait_event("start")
        process.terminate()
        assert process.wait() == 0


def test_faults_can_be_changed_while_it_runs() -> None:
    """A test switches a fault on and off again over HTTP; a misspelt one is refused and changes nothing."""
    with engine(*VLLM) as process:
        process.post("/admin/faults", {"unhealthy": True, "drop": ["vllm:num_requests_running"]})
        with pytest.raises(urllib.error.HTTPError, match="503"):
            process.get("/health")
        assert "vllm:num_requests_running{" not in process.get("/metrics")
        with pytest.raises(urllib.error.HTTPError, match="400"):
            process.post("/admin/faults", {"unhealthily": True})
        assert json.loads(process.get("/admin/faults"))["unhealthy"] is True
        process.post("/admin/faults", {})
        assert process.get("/health") == ""
        assert process.gauge("vllm:num_requests_running") == 0


def test_metrics_fail_as_told() -> None:
    """Hanging, late, half, reset, refused and HTML answers are what a reader sees."""
    with engine(*VLLM) as process:

        def told(**faults: Any) -> None:
            process.post("/admin/faults", faults)

        told(metrics="hang")
        with pytest.raises(TimeoutError):
            process.get("/metrics", timeout=0.5)
        told(metrics_seconds=0.6)
        began = time.monotonic()
        process.get("/metrics")
        assert time.monotonic() - began >= 0.6
        told(metrics="half")
        with pytest.raises(http.client.IncompleteRead):
            process.get("/metrics")
        told(metrics="reset")
        with pytest.raises((ConnectionError, urllib.error.URLError)):
            process.get("/metrics")
        told(metrics="error")
        with pytest.raises(urllib.error.HTTPError, match="500"):
            process.get("/metrics")
        told(metrics="html")
        assert process.get("/metrics").startswith("<html>")
        told(metrics="huge")
        assert len(process.get("/metrics")) > 1024 * 1024


def test_an_engine_told_to_crash_ends_with_its_code() -> None:
    """The process is gone without a goodbye, at run time and at its start: a container that restarts."""
    with engine(*VLLM) as process:
        process.post("/admin/faults", {"exit_code": 3})
        assert process.wait() == 3
    with engine(*VLLM, faults={"exit_code": 4}) as process:
        assert process.wait() == 4


def test_sglang_without_metrics_has_no_metrics() -> None:
    """SGLang serves /metrics only with its flag."""
    without = [argument for argument in SGLANG if argument != "--enable-metrics"]
    with engine(*without) as process, pytest.raises(urllib.error.HTTPError, match="404"):
        process.get("/metrics")


def test_it_serves_tls_with_a_certificate_and_can_refuse_handshakes(tmp_path: Path) -> None:
    """With a self-signed certificate it answers who does not verify; told to refuse, no handshake succeeds."""
    certificate, key = self_signed(tmp_path)
    arguments = (*VLLM, "--ssl-certfile", str(certificate), "--ssl-keyfile", str(key))
    unverified = ssl.create_default_context()
    unverified.check_hostname = False
    unverified.verify_mode = ssl.CERT_NONE
    with engine(*arguments) as process:
        secure = f"https://127.0.0.1:{process.port}/health"
        with urllib.request.urlopen(secure, timeout=5, context=unverified) as answer:
            assert answer.status == 200
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            urllib.request.urlopen(secure, timeout=5)
    with engine(*arguments, faults={"tls": "refuse"}) as process:
        with pytest.raises(urllib.error.URLError, match=r"\[SSL"):
            urllib.request.urlopen(f"https://127.0.0.1:{process.port}/health", timeout=5, context=unverified)
        assert process.get("/health") == ""


def test_what_cannot_be_run_says_so() -> None:
    """A misspelt fault ends the start with a sentence and a failure."""
    with engine(*VLLM, faults={"metric": "hang"}) as process:
        assert process.wait() == 1
        assert "no such fault: metric" in process.complaint()


def test_sixty_streams_cost_little() -> None:
    """Sixty streams of four tokens a second all come to their end on a quarter of a core."""
    with engine(*VLLM) as process:
        _ = process.port
        before = cpu_seconds(process.pid)
        ended: list[bool] = []

        def one() -> None:
            ended.append(open_stream(process, seconds=4, tokens=16).read().endswith(b"[DONE]\n\n"))

        threads = [threading.Thread(target=one) for _ in range(60)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert ended == [True] * 60
        used = cpu_seconds(process.pid) - before
        assert used < 1.0, f"{used:.2f} s of CPU"


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def self_signed(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "engine")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .sign(key, hashes.SHA256())
    )
    (folder / "crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return folder / "crt", folder / "key"
