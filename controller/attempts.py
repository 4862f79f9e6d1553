"""Effects of one pass that must not keep one another, or the status, from happening.

A label that cannot be restored is no reason to leave a lost replica missing, and a Service that a webhook refuses is
none to say nothing in the status. So each effect is tried, what failed is remembered, and the pass comes again.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from controller.cluster.client import ApiError, NoAnswerError


class Attempts:
    """Used as `with attempts:` around each effect: a refusal, or no answer, ends that effect alone."""

    def __init__(self) -> None:
        self._failures: list[ApiError | NoAnswerError] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> bool:
        if isinstance(error, ApiError | NoAnswerError):
            self._failures.append(error)
            return True
        return False

    @property
    def failed(self) -> str:
        """What did not succeed, "" when everything did."""
        return "; ".join(dict.fromkeys(map(str, self._failures)))

    @property
    def retry_after(self) -> float | None:
        """For how many seconds the API server asked to be left alone, None when it did not."""
        asked = [error.retry_after for error in self._failures if isinstance(error, ApiError)]
        return max((seconds for seconds in asked if seconds is not None), default=None)
