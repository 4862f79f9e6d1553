"""Aligning live objects: what is ours is restored, what others added stays."""

from __future__ import annotations

from typing import Any

import pytest

from controller.alignment import differs, patch_for

DESIRED: dict[str, Any] = {
    "kind": "Service",
    "metadata": {"name": "chat", "labels": {"a": "1"}},
    "spec": {"selector": {"app": "x"}, "ports": [{"name": "http", "port": 8000}]},
}


def live(**spec: Any) -> dict[str, Any]:
    """As the API server would give it back: with defaults and what others added."""
    return {
        "kind": "Service",
        "metadata": {"name": "chat", "labels": {"a": "1", "team": "x"}, "uid": "u"},
        "spec": {
            "clusterIP": "10.0.0.1",
            "selector": {"app": "x"},
            "ports": [{"name": "http", "port": 8000, "protocol": "TCP"}],
            **spec,
        },
    }


def test_defaults_and_additions_are_no_difference() -> None:
    """What the API server defaulted and what others labelled is left alone."""
    assert patch_for(DESIRED, live()) is None


def test_hand_edited_field_is_restored() -> None:
    """A port or a selector that somebody changed comes back."""
    patch = patch_for(DESIRED, live(ports=[{"name": "http", "port": 9999, "protocol": "TCP"}]))
    assert patch == {"spec": DESIRED["spec"]}


def test_key_that_narrows_a_selector_is_taken_out() -> None:
    """A key that somebody added to a selector would empty the Service; a merge patch removes it by null."""
    patch = patch_for(DESIRED, live(selector={"app": "x", "zone": "b"}))
    assert patch == {"spec": {"selector": {"app": "x", "zone": None}}}


def test_lists_must_have_the_same_length() -> None:
    """An element more or less is a difference; text is no list."""
    assert differs([1], [1, 2]) and differs(["a"], "a") and not differs([{"a": 1}], [{"a": 1, "b": 2}])


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("1000m", "1"),
        (2, "2"),
        ("0.5", "500m"),
        ("1024Mi", "1Gi"),
        ("5e9", "5G"),
        ("1500n", "1.5u"),
        ("2E", "2000P"),
    ],
)
def test_amounts_are_compared_by_value(ours: Any, theirs: str) -> None:
    """A quantity that the API server wrote in another form is no difference, wherever it stands below."""
    containers = [[{"resources": {"limits": {"cpu": amount}}}] for amount in (ours, theirs)]
    assert not differs(*containers)


@pytest.mark.parametrize(
    ("ours", "theirs"), [("1", "2"), ("1M", "1Mi"), ("1m", "1M"), ("1", None), ("x", "y")]
)
def test_other_amounts_differ(ours: str, theirs: str | None) -> None:
    """Amounts of another value, missing ones and unreadable ones are differences."""
    assert differs({"requests": {"cpu": ours}}, {"requests": {"cpu": theirs}})
