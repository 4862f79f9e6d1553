"""A real API server refuses what is wrong, naming the field and the reason, and takes what is right."""

from __future__ import annotations

from typing import Any, Final

import pytest

from controller.cluster.client import ApiError, Client
from controller.cluster.resources import MODEL_DEPLOYMENTS
from unit.api_server import refused_rest, refused_roles
from unit.api_server.accepted import ACCEPTED
from unit.api_server.objects import NAMESPACE

pytestmark = pytest.mark.control_plane

DRY_RUN: Final = {"dryRun": "All", "fieldValidation": "Strict"}
REFUSED: Final = refused_roles.REFUSED | refused_rest.REFUSED


@pytest.mark.parametrize(("wrong", "field", "words"), REFUSED.values(), ids=REFUSED.keys())
async def test_refused(client: Client, wrong: dict[str, Any], field: str, words: str) -> None:
    """A wrong object is refused when it is written, with the path of the field and a reason that helps."""
    with pytest.raises(ApiError) as refusal:
        await client.request(
            "POST", MODEL_DEPLOYMENTS.path(namespace=NAMESPACE), query=DRY_RUN, body=without_none(wrong)
        )
    assert refusal.value.status in (400, 422)
    assert words in str(refusal.value)
    assert f"{field}:" in str(refusal.value)


@pytest.mark.parametrize("right", ACCEPTED.values(), ids=ACCEPTED.keys())
async def test_accepted(client: Client, right: dict[str, Any]) -> None:
    """A right object is taken, and no field of it is dropped."""
    answer = await client.request(
        "POST", MODEL_DEPLOYMENTS.path(namespace=NAMESPACE), query=DRY_RUN, body=right
    )
    assert_kept(right["spec"], answer.body["spec"])


def assert_kept(given: Any, stored: Any, path: str = "spec") -> None:
    """Everything that was given is stored; defaults may have been added."""
    if isinstance(given, dict):
        for key, value in given.items():
            assert key in stored, f"{path}.{key}"
            assert_kept(value, stored[key], f"{path}.{key}")
    elif isinstance(given, list):
        assert len(given) == len(stored), path
        for index, value in enumerate(given):
            assert_kept(value, stored[index], f"{path}[{index}]")
    else:
        assert given == stored, path


def without_none(value: Any) -> Any:
    """The object as a user would send it who left those fields out."""
    if isinstance(value, dict):
        return {key: without_none(inner) for key, inner in value.items() if inner is not None}
    return [without_none(inner) for inner in value] if isinstance(value, list) else value
