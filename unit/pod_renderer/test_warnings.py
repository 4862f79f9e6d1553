"""What a spec is warned of though it is rendered."""

from __future__ import annotations

import pytest

from controller.pod_renderer.warnings import spec_warnings
from unit.pod_renderer.specs import spec


@pytest.mark.parametrize(
    ("arguments", "path", "says"),
    [
        (["--disable-log-stats"], "spec.roles[0].extraArgs[0]: --disable-log-stats", "waits its whole grace"),
        (
            ["--max-num-seqs=8", "--disable_log_stats"],
            "spec.roles[0].extraArgs[1]",
            "switches off the gauges",
        ),
        (["--disable-log-st"], "spec.roles[0].extraArgs[0]", "held until it aborts"),
        (["--shutdown-timeout=60"], "spec.roles[0].extraArgs", "of --shutdown-timeout 60 at most 5 s"),
        (["--shutdown-timeout", "5.5"], "spec.roles[0].extraArgs", "at most 5 s"),
        (["--port", "9000"], "spec.roles[0].extraArgs", "take the probes away"),
        (["--host=127.0.0.1"], "spec.roles[0].extraArgs", "take the probes away"),
    ],
)
def test_warned_of(arguments: list[str], path: str, says: str) -> None:
    """N11 A flag that takes a guarantee away is named with its place and with what it costs."""
    (warning,) = spec_warnings(spec(extraArgs=arguments))
    assert warning.startswith(path) and says in warning


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--disable-log-requests"],
        ["--disable-log"],
        ["--shutdown-timeout", "5"],
        ["--shutdown-timeout=3"],
        ["--shutdown-timeout", "soon"],
        ["--shutdown-timeout"],
    ],
)
def test_not_warned_of(arguments: list[str]) -> None:
    """What takes nothing away, or is the engine's own to refuse, is no reason to warn."""
    assert spec_warnings(spec(extraArgs=arguments)) == ()


def test_flags_of_another_engine() -> None:
    """vLLM's flags mean nothing to SGLang, and the command of a take-over role is not ours to judge."""
    assert spec_warnings(spec(engine="SGLang", extraArgs=["--disable-log-stats"])) == ()
    assert spec_warnings(spec(command=["vllm", "serve", "tiny", "--disable-log-stats"])) == ()
