"""A run without losses counts only when there was something to lose."""

from __future__ import annotations

import pytest

from e2e.load.void import void_reasons

GOOD = {
    "distinct_prompts": 5,
    "open_at_edit": 5,
    "seconds_into_draining": 5.0,
    "control_failed": 0,
    "contrast_cut": 1,
}


def test_run_that_counts() -> None:
    """Differing prompts, five streams at the edit, one 5 s into Draining, a clean control and a contrast that cut."""
    assert void_reasons(**GOOD) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"distinct_prompts": 4}, "prompts"),
        ({"open_at_edit": 4}, "4 streams"),
        ({"seconds_into_draining": 4.9}, "into Draining"),
        ({"control_failed": 1}, "nothing was removed"),
        ({"contrast_cut": 0}, "cut nothing"),
    ],
)
def test_each_rule_voids_alone(change: dict[str, int], says: str) -> None:
    """Each rule that does not hold makes the run void, and is the one that is named."""
    [reason] = void_reasons(**{**GOOD, **change})  # type: ignore[arg-type]
    assert says in reason
