"""What an argv says about prefill, decode and ranks."""

from __future__ import annotations

from typing import Any

import pytest

from controller.engines.command_line import Finding, Kind, read_command_line

VLLM = ["vllm", "serve", "/model", "--served-model-name", "tiny"]
SGLANG = ["python3", "-m", "sglang.launch_server", "--model-path", "/model", "--enable-metrics"]


def read(*arguments: str, start: list[str] | None = None, **container: Any) -> Finding:
    return read_command_line({"command": [*(VLLM if start is None else start), *arguments], **container})


@pytest.mark.parametrize(
    "arguments",
    [
        ["--data-parallel-rank", "0"],
        ["--data-parallel-rank=0"],
        ["--data_parallel_rank=1"],
        ["-dpn", "0"],
        ["-dpn=0"],
        ["--data-parallel-external-lb"],
        ["-dpe"],
        ["--data-parallel-hybrid-lb"],
        ["--data_parallel_hybrid_lb"],
        ["-dph"],
        ["-dpm"],
        ["--data-parallel-ext"],
        ["--kv-transfer-config", '{"kv_connector":"NixlConnector","kv_role":"kv_producer"}'],
        ['--kv-transfer-config={"kv_connector":"NixlConnector","kv_role":"kv_consumer"}'],
        ['--kv_transfer_config={"kv_connector":"NixlConnector","kv_role":"kv_both"}'],
        ["--kv-transfer-config.kv_connector", "P2pNcclConnector", "--kv-transfer-config.kv_role=kv_producer"],
    ],
)
def test_vllm_disaggregated(arguments: list[str]) -> None:
    """H10 vLLM ranks behind an outside balancer, and engines that hand KV to others, are recognised."""
    found = read(*arguments)
    assert found.kind is Kind.DISAGGREGATED
    assert found.flag.startswith("--data-parallel") or found.flag == "--kv-transfer-config"
    assert found.flag.split()[0] in found.reason


@pytest.mark.parametrize(
    "arguments",
    [
        ["--disaggregation-mode", "prefill"],
        ["--disaggregation-mode=decode"],
        ["--disaggregation_mode=decode"],
        ["--disaggregation-m", "decode"],
    ],
)
def test_sglang_disaggregated(arguments: list[str]) -> None:
    """H10 SGLang prefill and decode are recognised, with the mode in the reason."""
    found = read(*arguments, start=SGLANG)
    assert found.kind is Kind.DISAGGREGATED
    assert found.reason in ("--disaggregation-mode prefill", "--disaggregation-mode decode")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--tensor-parallel-size", "8", "--port", "8000", "--seed", "-1"],
        ["--disaggregation-mode=null"],
        ["--disaggregation-mode", "null"],
        ["--disable-log-stats", "--kv-cache-dtype", "fp8", "--kv-events-config", "{}"],
        ["--kv-transfer-config", '{"kv_connector":"OffloadingConnector","kv_role":"kv_both"}'],
        ["--data-parallel-size-local", "1"],
        ["--api-key", "$(KEY)", "--chat-template=$(TEMPLATE)", "--model-url", "http://$(HOST)/"],
    ],
)
def test_server(arguments: list[str]) -> None:
    """H10 Plain servers of both engines are servers: `null` is not a mode, tensor parallelism is nobody else's."""
    assert read(*arguments).kind is Kind.SERVER
    assert read(*arguments, start=SGLANG).kind is Kind.SERVER


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["$(EXTRA)"], "EXTRA"),
        (["--enable-x", "$(EXTRA)"], "EXTRA"),
        (["--data$(EXTRA)"], "EXTRA"),
        (["--disaggregation-mode", "$(MODE)"], "MODE"),
        (["--disaggregation-mode=$(MODE)"], "MODE"),
        (["--disaggregation-mode"], "no value"),
        (["--disaggregation-mode", "both"], "'both'"),
        (["--kv-transfer-config", "{"], "JSON"),
        (["--kv-transfer-config", "{}"], "no role"),
        (["--config", "/etc/flags.yaml"], "--config"),
        (["--data-parallel-size", "many"], "'many'"),
    ],
)
def test_unreadable(arguments: list[str], says: str) -> None:
    """A flag, or a value that matters, which cannot be read is not taken for an ordinary server."""
    found = read(*arguments)
    assert found.kind is Kind.UNREADABLE
    assert says in found.reason


@pytest.mark.parametrize(
    "container", [{}, {"args": ["--x"]}, {"command": ["/bin/bash", "-c", "vllm serve /m"]}]
)
def test_no_command_of_its_own(container: dict[str, Any]) -> None:
    """An image's own entry point and a shell's script cannot be read."""
    assert read_command_line(container).kind is Kind.UNREADABLE


def test_args_count() -> None:
    """What stands in `args` is part of the command line."""
    assert read(args=["--data-parallel-external-lb"]).kind is Kind.DISAGGREGATED


def test_expansion() -> None:
    """`$(NAME)` is expanded from `env`, through earlier variables; `$$(NAME)` is text."""
    env = [{"name": "A", "value": "dec"}, {"name": "B", "value": "$(A)ode"}]
    assert read("--disaggregation-mode", "$(B)", env=env).reason == "--disaggregation-mode decode"
    assert read("--served-model-name=$$(B)", env=env).kind is Kind.SERVER


def test_value_from() -> None:
    """A variable from a Secret is unknown, and stays so for those made of it; one of the Pod's own fields is not."""
    env = [
        {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        {"name": "T", "value": "x$(S)"},
        {"name": "MEMBER", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['ebb.dev/member']"}}},
    ]
    command = [*VLLM, "--disaggregation-mode=$(T)"]
    found = read_command_line({"command": command, "env": env})
    assert found.kind is Kind.UNREADABLE
    assert "S comes from secretKeyRef" in found.reason
    command = [*VLLM, "--distributed-node", "$(MEMBER)"]
    fields = {"metadata.labels['ebb.dev/member']": "1"}
    assert read_command_line({"command": command, "env": env}).kind is Kind.UNREADABLE
    assert read_command_line({"command": command, "env": env}, resolve=fields.get).kind is Kind.SERVER


@pytest.mark.parametrize(
    ("arguments", "ranks"),
    [
        ([], 1),
        (["--data-parallel-size", "2"], 2),
        (["-dp=3"], 3),
        (["--dp-size", "2", "--data_parallel_size=4"], 4),
        (["--dp", "2"], 2),
    ],
)
def test_ranks(arguments: list[str], ranks: int) -> None:
    """The ranks that a command declares; the last one given counts."""
    assert read(*arguments).ranks == ranks
