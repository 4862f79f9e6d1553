"""Settings of a run."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from controller.settings import Address, Settings


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":8080", Address("", 8080)),
        ("127.0.0.1:0", Address("127.0.0.1", 0)),
        ("[::1]:9090", Address("::1", 9090)),
        ("localhost:80", Address("localhost", 80)),
    ],
)
def test_an_address_is_host_and_port(text: str, address: Address) -> None:
    """host:port, :port and [v6]:port are addresses."""
    assert Settings(bind=text).bind == address  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "8080", "host", "host:", "host:70000", "::1:80", "a:b:80", "host:-1"])
def test_anything_else_is_refused_with_its_text(text: str) -> None:
    """What is no address is refused, and the message repeats it."""
    with pytest.raises(ValidationError, match="is not of the form host:port"):
        Settings(bind=text)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [{"namespace": "Not/One"}, {"namespace": ""}, {"lease_namespace": "A"}, {"workers": 0}, {"unknown": 1}],
)
def test_impossible_settings_are_refused(change: dict[str, object]) -> None:
    """A namespace that cannot exist, no workers, or a setting nobody knows is refused."""
    with pytest.raises(ValidationError):
        Settings.model_validate(change)
