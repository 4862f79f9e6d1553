"""Text that comes out of somebody else's container or Pod spec: whatever it says, it is only text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.engines.command_line import Kind, read_command_line
from controller.engines.gauges import accepted_names
from controller.member_reader.envelope import parse_envelope
from controller.member_reader.verdict import Verdict, judge

LONG = "9" * 5000
"""Longer than Python turns into a number without being asked to."""
NAMES = accepted_names("vLLM")

flags = st.sampled_from(
    [
        *("--kv-transfer-config", "--data-parallel-size", "-dp", "--disaggregation-mode", "--dp-size"),
        *("--data-parallel-rank", "--", "", "$(X)", "$$(", "={", "--kv-transfer-config.kv_role"),
    ]
)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--kv-transfer-config", "[" * 4090],
        ["--kv-transfer-config", '{"kv_connector": {}, "kv_role": []}'],
        ["--kv-transfer-config", '{"kv_role": ' + LONG + "}"],
        ["--data-parallel-size", LONG],
        ["--data-parallel-size", "٣"],
    ],
)
def test_hostile_command_line_is_unreadable(arguments: list[str]) -> None:
    """A command line that cannot be read is refused with a reason; it raises nothing."""
    found = read_command_line({"command": ["vllm", "serve", "m", *arguments]})
    assert found.kind is Kind.UNREADABLE and found.reason


@given(st.lists(st.one_of(st.text(max_size=40), flags), max_size=8), st.text(max_size=20))
def test_any_command_line_is_read_or_refused(arguments: list[str], value: str) -> None:
    """Whatever stands in a Pod's command, reading it gives a finding."""
    container = {"command": ["vllm", "serve", *arguments], "env": [{"name": "X", "value": value}]}
    assert read_command_line(container).kind in Kind


@pytest.mark.parametrize(
    "row", [f"#own {LONG}", f"#sock a b 01 {LONG}:0", f"#sock a b 01 0:{'f' * 5000}", "#sock a b 01 -1:0"]
)
def test_hostile_envelope_is_not_idle(row: str) -> None:
    """Rows of the envelope that no kernel writes are named, and the engine is not idle."""
    text = f"vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n{row}\n#end\n"
    envelope = parse_envelope(text.encode(), names=NAMES)
    assert judge(envelope, gauges=[], ranks=1).verdict is Verdict.UNKNOWN or row.startswith("#own")


@given(
    st.lists(
        st.one_of(st.text(max_size=60), st.from_regex(r"#(own|sock|error|unreadable|end)[ -~]{0,60}")),
        max_size=8,
    )
)
def test_any_envelope_is_taken_apart(lines: list[str]) -> None:
    """Whatever an exec prints, taking it apart and judging it gives a verdict."""
    envelope = parse_envelope("\n".join(lines).encode(), names=NAMES)
    assert judge(envelope, gauges=[], ranks=1).verdict in Verdict


@pytest.mark.parametrize("filler", ["1", " ", '{a="', "1e"])
def test_row_that_is_made_to_be_costly(filler: str) -> None:
    """A row of a wanted gauge longer than any engine writes is unreadable at once, however it is made."""
    row = b"vllm:num_requests_running " + (filler * 300_000).encode() + b"z"
    envelope = parse_envelope(row + b"\n#end\n", names=NAMES)
    assert envelope.samples == () and envelope.unreadable
