"""Count the tests of several pytest runs in one closing line.

CI runs pytest more than once (without a node, on a node, the failed ones of the node once more), and each
run closes with a line of its own. This reads their JUnit reports in order: a later result of a test replaces
an earlier one, and a replaced failure is named as retried. Standard library only: it must work when making
`.venv` failed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from xml.etree import ElementTree


class Result(IntEnum):
    """Ordered so that the worse of two results of one run (a test and its teardown) is the greater."""

    SKIPPED = 0
    PASSED = 1
    FAILED = 2


@dataclass(frozen=True)
class Tally:
    """The last result of each test, and the tests that were run again after a failure."""

    results: dict[str, Result]
    retried: tuple[str, ...]

    def count(self, result: Result) -> int:
        return sum(1 for found in self.results.values() if found is result)

    def __str__(self) -> str:
        passed, failed, skipped = (
            self.count(result) for result in (Result.PASSED, Result.FAILED, Result.SKIPPED)
        )
        return f"{passed} passed, {failed} failed, {skipped} skipped"


def read_report(text: str) -> dict[str, Result]:
    """The result of each test of one JUnit report, by `class::name`."""
    results: dict[str, Result] = {}
    for case in ElementTree.fromstring(text).iter("testcase"):  # noqa: S314 - pytest's own report
        test = f"{case.get('classname', '')}::{case.get('name', '')}"
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            result = Result.FAILED
        elif "skipped" in kinds:
            result = Result.SKIPPED
        else:
            result = Result.PASSED
        results[test] = max(result, results.get(test, Result.SKIPPED))
    return results


def tally(reports: Iterable[dict[str, Result]]) -> Tally:
    """Reports in the order of their runs become one count."""
    results: dict[str, Result] = {}
    retried: list[str] = []
    for report in reports:
        retried += [test for test in report if results.get(test) is Result.FAILED]
        results |= report
    return Tally(results=results, retried=tuple(retried))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reports", nargs="+", type=Path)
    parser.add_argument(
        "--any-failed", action="store_true", help="print nothing; exit 0 when a test failed, 1 when none did"
    )
    arguments = parser.parse_args()
    found = tally(read_report(path.read_text(encoding="utf-8")) for path in arguments.reports)
    if arguments.any_failed:
        return 0 if found.count(Result.FAILED) else 1
    print(f"retried: {len(found.retried)}")
    for test in found.retried:
        print(f"  {test}: {found.results[test].name.lower()} the second time")
    print(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
