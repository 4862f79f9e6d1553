"""When a wait of an operation ends. Every figure comes from the policy that the operation carries itself."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from controller.retirement_planner.state import Operation, State

WITHDRAWAL: Final = frozenset({State.ADMITTED, State.DISQUALIFIED, State.WITHDRAWING})

DEPARTURE_SECONDS: Final = 60.0
"""How long past its deletion timestamp (which includes the grace) a target may take before it is called late."""
EVIDENCE_WRITE_SECONDS: Final = 10.0
"""Evidence older than this is not written as the ground of a deletion."""
EVIDENCE_DELETE_SECONDS: Final = 15.0
"""Evidence older than this does not carry the first delete: a suspended process, a restarted one."""
IDLE_PAIR_SECONDS: Final = (1.0, 10.0)
"""From the end of the first idle read to the start of the second."""


def limit(operation: Operation) -> datetime:
    """The moment at which the present step is spent; equality is spent. Not asked of Deleting past the point."""
    policy = operation.policy
    if operation.state in WITHDRAWAL:
        # The phase clock is the admission's (or, after a retry, the retry's) until Draining stamps it anew.
        step = operation.phase_started_at + timedelta(seconds=policy.withdraw_seconds)
        return min(operation.deadline, step)
    if operation.state is State.DRAINING:
        return min(operation.deadline, operation.phase_started_at + timedelta(seconds=policy.drain_seconds))
    if operation.state is State.SETTLING:
        return operation.phase_started_at + timedelta(seconds=policy.settle_seconds)
    return operation.deadline


def step_name(operation: Operation) -> str:
    """How the sentence of an abort calls the step that used up its time."""
    if operation.state in WITHDRAWAL:
        return f"withdrawal did not finish within {operation.policy.withdraw_seconds} s"
    if operation.state is State.DRAINING:
        return f"draining did not finish within {operation.policy.drain_seconds} s"
    return f"the operation did not finish within {operation.policy.total_seconds} s"
