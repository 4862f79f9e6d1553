"""The gauge lists."""

from __future__ import annotations

import pytest

from controller.engines.gauges import accepted_names, demanded


def test_vllm() -> None:
    """vLLM's work is what runs and what waits."""
    assert accepted_names("vLLM") == ("vllm:num_requests_running", "vllm:num_requests_waiting")


def test_sglang() -> None:
    """SGLang's work stands in six gauges, one of which older releases call otherwise."""
    assert len(demanded("SGLang")) == 6
    assert [gauge.names for gauge in demanded("SGLang") if gauge.older_names] == [
        ("sglang:num_prefill_bootstrap_queue_reqs", "sglang:num_prefill_prealloc_queue_reqs")
    ]


@pytest.mark.parametrize("engine", ["Custom", "", "vllm"])
def test_no_list(engine: str) -> None:
    """An engine that is not known has no gauge list, rather than somebody else's."""
    assert demanded(engine) == ()
