"""How the hook gets into a Pod."""

from __future__ import annotations

import pytest

from controller.drain_hook import program
from controller.drain_hook.render import HOOK_REVISION, hook_facts, hook_lifecycle

URL = "https://127.0.0.1:8200/metrics"


def test_the_command() -> None:
    """J1 One exec of python3 with the whole program, the URL, the grace and only this engine's gauges."""
    lifecycle = hook_lifecycle(engine="vLLM", url=URL, grace_seconds=45)
    name, text, *arguments = lifecycle["preStop"]["exec"].pop("command")
    assert lifecycle == {"preStop": {"exec": {}}}
    assert (name, text) == ("python3", "-c")
    assert arguments[0].startswith(f'"""{(program.__doc__ or "")[:40]}')
    assert arguments[1:] == [URL, "45", "vllm:num_requests_running", "vllm:num_requests_waiting"]


def test_sglang_gauges() -> None:
    """J1 SGLang's hook reads its six gauges, the one that was renamed under both names."""
    command = hook_lifecycle(engine="SGLang", url=URL, grace_seconds=30)["preStop"]["exec"]["command"]
    assert len(command[5:]) == 7
    assert all(name.startswith("sglang:num_") for name in command[5:])


def test_the_facts() -> None:
    """The hash covers grace, URL, gauges and revision, and not the text, so that a fix turns nothing over."""
    assert hook_facts(engine="vLLM", url=URL, grace_seconds=45) == {
        "grace": 45,
        "url": URL,
        "gauges": ["vllm:num_requests_running", "vllm:num_requests_waiting"],
        "hookRevision": HOOK_REVISION,
    }


def test_an_engine_without_gauges() -> None:
    """An engine whose work nobody can read gets no hook that pretends to."""
    with pytest.raises(ValueError, match="no gauge list"):
        hook_lifecycle(engine="Custom", url=URL, grace_seconds=30)


@pytest.mark.parametrize("grace", [15, 30, 3600])
def test_the_figures_fit(grace: int) -> None:
    """J3 For the least, the default and the greatest grace: settle + 2 <= deadline, and deadline + 2 < grace."""
    deadline = grace - program.RESERVE
    assert deadline >= program.SETTLE + 2
    assert deadline + program.READ_SECONDS < grace
