"""What the demo prints at its end: the timeline of the scale-down and the table of what became of every stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the streams of one way to take a replica away."""

    way: str
    started: int
    finished: int
    cut: int
    failed: int


@dataclass(frozen=True, slots=True)
class Moment:
    """One line of the timeline; seconds from the edit."""

    seconds: float
    text: str


def timeline(moments: Sequence[Moment]) -> str:
    return "\n".join(f"  {moment.seconds:6.1f} s  {moment.text}" for moment in moments)


def table(outcomes: Sequence[Outcome]) -> str:
    wide = max(len(outcome.way) for outcome in outcomes)
    head = f"  {'how the replica left':<{wide}}  {'started':>8} {'finished':>9} {'cut':>5} {'failed':>7}"
    rows = [f"  {o.way:<{wide}}  {o.started:>8} {o.finished:>9} {o.cut:>5} {o.failed:>7}" for o in outcomes]
    return "\n".join([head, f"  {'-' * (len(head) - 2)}", *rows])
