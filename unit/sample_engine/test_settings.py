"""The sample engine runs under the command lines of both real ones."""

from __future__ import annotations

import pytest

from e2e.engine.faults import Faults, parse_faults
from e2e.engine.settings import Settings, parse


def vllm(*argv: str, **environment: str) -> Settings:
    return parse("vllm", ["serve", *argv], environment)


def sglang(*argv: str, **environment: str) -> Settings:
    return parse("sglang", argv, environment)


def test_a_managed_vllm_role_runs_it_unmodified() -> None:
    """The argv that the controller renders, with flags of the real engine, is understood."""
    settings = vllm(
        *("/models/tiny", "--served-model-name", "tiny", "--max-model-len", "4096", "--enforce-eager"),
        *("--gpu_memory_utilization=0.5", "--host", "0.0.0.0", "--port", "8001"),
    )
    assert (settings.flavour, settings.model, settings.host, settings.port) == (
        "vllm",
        "tiny",
        "0.0.0.0",
        8001,
    )
    assert settings.statistics
    assert settings.on_sigterm == "abort"


def test_a_managed_sglang_role_runs_it_unmodified() -> None:
    """SGLang's argv names the model by a flag, and its statistics have to be asked for."""
    settings = sglang(
        *(
            "--model-path",
            "/models/tiny",
            "--served-model-name",
            "tiny",
            "--enable-metrics",
            "--tp-size",
            "2",
        ),
        *("--host", "0.0.0.0", "--port", "8000"),
    )
    assert (settings.flavour, settings.model, settings.port) == ("sglang", "tiny", 8000)
    assert settings.statistics
    assert settings.on_sigterm == "serve"
    assert not sglang("--model-path", "tiny").statistics


def test_a_model_without_a_served_name_is_called_by_its_path() -> None:
    """Both engines serve a model under its path when no other name is given; defaults are those of the engine."""
    assert vllm("org/tiny").model == "org/tiny"
    assert vllm("org/tiny").port == 8000
    assert sglang("--model-path", "org/tiny").model == "org/tiny"
    assert (sglang("--model-path", "x").host, sglang("--model-path", "x").port) == ("127.0.0.1", 30000)


def test_flags_that_matter_here_have_their_real_names() -> None:
    """Slots, ranks, statistics and TLS are switched by the flags of the real engines, underscores too."""
    settings = vllm(
        *("tiny", "--max_num_seqs", "4", "--data-parallel-size=2", "--disable-log-stats"),
        *("--ssl-certfile", "/tls/crt", "--ssl-keyfile", "/tls/key"),
    )
    assert (settings.slots, settings.ranks, settings.statistics) == (4, 2, False)
    assert (settings.certificate, settings.key) == ("/tls/crt", "/tls/key")
    assert sglang("--model-path", "x", "--max-running-requests", "7", "--dp-size", "3").slots == 7


def test_environment_says_the_rest() -> None:
    """Name, faults and the way to end come by variables, which a Pod of any role may set."""
    settings = vllm(
        "tiny",
        SAMPLE_ENGINE_NAME="pod-0",
        SAMPLE_ENGINE_SIGTERM="serve",
        SAMPLE_ENGINE_FAULTS='{"metrics": "hang", "drop": ["a"]}',
    )
    assert (settings.name, settings.on_sigterm) == ("pod-0", "serve")
    assert settings.faults == Faults(metrics="hang", drop=("a",))
    assert vllm("tiny", "--faults", '{"unhealthy": true}').faults.unhealthy


@pytest.mark.parametrize(
    ("flavour", "argv", "environment", "says"),
    [
        ("vllm", ["chat", "tiny"], {}, "vllm serve"),
        ("vllm", ["serve", "--port", "1"], {}, "no model"),
        ("sglang", [], {}, "no model"),
        ("vllm", ["serve", "tiny"], {"SAMPLE_ENGINE_SIGTERM": "dance"}, "SAMPLE_ENGINE_SIGTERM"),
        ("vllm", ["serve", "tiny"], {"SAMPLE_ENGINE_FAULTS": '{"metrics": "odd"}'}, "metrics: 'odd'"),
        ("vllm", ["serve", "tiny"], {"SAMPLE_ENGINE_FAULTS": '{"metric": ""}'}, "no such fault: metric"),
        ("vllm", ["serve", "tiny"], {"SAMPLE_ENGINE_FAULTS": "[]"}, "one JSON object"),
    ],
)
def test_what_cannot_be_run_is_refused(
    flavour: str, argv: list[str], environment: dict[str, str], says: str
) -> None:
    """A misspelt switch ends the start with a sentence: a test must not run without its fault."""
    with pytest.raises(ValueError, match=says):
        parse(flavour, argv, environment)


def test_no_text_is_no_fault() -> None:
    """An empty variable is an engine in good health."""
    assert parse_faults("") == Faults()
