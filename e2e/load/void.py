"""When a run that cut no stream proves nothing: nobody was there to be cut."""

from __future__ import annotations

LEAST_PROMPTS = 5
LEAST_OPEN = 5
LEAST_SECONDS_INTO_DRAINING = 5.0


def void_reasons(
    *,
    distinct_prompts: int,
    open_at_edit: int,
    seconds_into_draining: float,
    control_failed: int,
    contrast_cut: int,
) -> list[str]:
    """Why a run is void, empty when it counts.

    `control_failed`: streams lost in the minute without a removal. `contrast_cut`: streams that a plain delete of the
    same engine without a drain window cut. `seconds_into_draining`: how long into `Draining` a stream still ran.
    """
    reasons = []
    if distinct_prompts < LEAST_PROMPTS:
        reasons.append(f"only {distinct_prompts} prompts differed, and a router may send like to like")
    if open_at_edit < LEAST_OPEN:
        reasons.append(f"{open_at_edit} streams were open on the target at the edit, fewer than {LEAST_OPEN}")
    if seconds_into_draining < LEAST_SECONDS_INTO_DRAINING:
        reasons.append(
            f"no stream ran {LEAST_SECONDS_INTO_DRAINING:g} s into Draining "
            f"(the last one {seconds_into_draining:.1f} s)"
        )
    if control_failed:
        reasons.append(f"{control_failed} streams were lost while nothing was removed")
    if contrast_cut == 0:
        reasons.append("the plain delete without a drain window cut nothing, so cuts would not have shown")
    return reasons
