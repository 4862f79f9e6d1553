"""Condition types and reasons are documented and complete."""

from __future__ import annotations

import re

import pytest

from apis.v1alpha1.conditions import REASONS, ConditionType, Reason


@pytest.mark.parametrize("name", [*ConditionType, *Reason], ids=str)
def test_each_has_one_sentence(name: ConditionType | Reason) -> None:
    """A type or reason is a CamelCase word with one sentence about it."""
    assert re.fullmatch(r"([A-Z][a-z]+)+", name)
    assert re.fullmatch(r"[A-Z].*[^.]\.", name.doc)


def test_every_reason_belongs_to_a_condition() -> None:
    """Each condition lists its reasons, and no reason is without a condition."""
    assert set(REASONS) == set(ConditionType)
    assert {reason for reasons in REASONS.values() for reason in reasons} == set(Reason)
