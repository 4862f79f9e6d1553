"""The count that closes a CI run."""

from __future__ import annotations

from tools.tally import Result, read_report, tally

REPORT = """<?xml version="1.0"?><testsuites><testsuite>
<testcase classname="unit.a" name="ok"/>
<testcase classname="unit.a" name="bad"><failure message="x"/></testcase>
<testcase classname="unit.a" name="broken"><error message="x"/></testcase>
<testcase classname="unit.a" name="left"><skipped message="x"/></testcase>
<testcase classname="unit.a" name="torn"/>
<testcase classname="unit.a" name="torn"><error message="teardown"/></testcase>
</testsuite></testsuites>"""


def test_a_report_is_read_test_by_test() -> None:
    """Failures and errors are failed, and a test whose teardown fails is failed once."""
    assert read_report(REPORT) == {
        "unit.a::ok": Result.PASSED,
        "unit.a::bad": Result.FAILED,
        "unit.a::broken": Result.FAILED,
        "unit.a::left": Result.SKIPPED,
        "unit.a::torn": Result.FAILED,
    }
    assert str(tally([read_report(REPORT)])) == "1 passed, 3 failed, 1 skipped"


def test_a_retry_replaces_and_is_named() -> None:
    """A second result of a failed test counts instead of the first, and the test is named as retried."""
    first = {"t::a": Result.PASSED, "t::b": Result.FAILED, "t::c": Result.FAILED}
    found = tally([first, {"t::b": Result.PASSED, "t::c": Result.FAILED}])
    assert str(found) == "2 passed, 1 failed, 0 skipped"
    assert found.retried == ("t::b", "t::c")


def test_runs_add_up() -> None:
    """Tests of different runs are counted together, and none of them is a retry."""
    found = tally([{"unit::a": Result.PASSED}, {"e2e::a": Result.SKIPPED}])
    assert str(found) == "1 passed, 0 failed, 1 skipped"
    assert found.retried == ()
