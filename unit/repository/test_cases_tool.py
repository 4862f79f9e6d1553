"""`make cases`: what counts as a test of a case, and what is said to be missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.cases import (
    BUGS,
    CASES,
    REASONS,
    TREES,
    Case,
    cases_shown,
    opening_numbers,
    read_cases,
    reasons_given,
    report,
    shown_by,
    strangers,
)


@pytest.mark.parametrize(
    ("docstring", "numbers"),
    [
        ("G6 All zero is Idle.", ("G6",)),
        ("A1, A2 and A3: budgets.", ("A1", "A2", "A3")),
        ("B11: a change of mind.", ("B11",)),
        ("B04-02, A7 A bug and a case.", ("B04-02", "A7")),
        ("B04-02 kin", ("B04-02",)),
        ("\n    F1 Two clean looks.", ("F1",)),
        ("All zero is Idle, as G6 says.", ()),
        ("G6All zero", ()),
        ("S1 An invariant is not a case.", ()),
        ("HTTP2 is not a case.", ()),
        ("A 503 is unknown.", ()),
        ("", ()),
    ],
)
def test_numbers_stand_at_the_start(docstring: str, numbers: tuple[str, ...]) -> None:
    """Only numbers that a docstring starts with count."""
    assert opening_numbers(docstring) == numbers


def test_only_tests_show_cases() -> None:
    """Helpers, classes and comments show nothing; async tests and methods do."""
    source = '''
def helper():
    """G1 not a test."""

class TestAll:
    """G2 not a test either."""

    def test_one(self):
        """G3 yes."""

async def test_two():
    """G5, G6 yes."""

def test_three():
    # G7 not a docstring
    pass
'''
    assert sorted(shown_by(source)) == [("G3", "test_one"), ("G5", "test_two"), ("G6", "test_two")]


def test_missing_numbers_are_listed_per_owner() -> None:
    """Each owner's cases without a test are named, a shared case with both owners."""
    cases = [Case("A1", ("A",), "one"), Case("A2", ("A", "B"), "two"), Case("B1", ("B",), "three")]
    tests = {"A1": ["f::t"]}
    assert list(report(cases, tests, ["A", "B"])) == [
        "A: 1 of 2 have a test",
        "  A2     two",
        "B: 0 of 2 have a test",
        "  A2     two",
        "  B1     three",
    ]


def test_numbers_that_nothing_has_are_named() -> None:
    """A test that claims a case which there is not is named with its place."""
    assert list(strangers(["A1"], {"A1": ["f::t"], "N99": ["f::u"]})) == ["no case is called N99: f::u"]


def test_a_row_with_a_reason_counts(tmp_path: Path) -> None:
    """A bug that cannot happen is answered by a table row that says why; a row without a reason answers nothing."""
    table = tmp_path / "reasons.md"
    table.write_text("| number | why |\n|---|---|\n| B04-15 | because |\n| B04-16 | |\nB04-17 no row\n")
    assert reasons_given(table) == {"B04-15": ["reasons.md"]}
    assert reasons_given(tmp_path / "absent.md") == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A1 A one\nA1 B two", "line 2: A1 is there twice"),
        ("# fine\n\nwrong", "line 3: not 'NUMBER OWNER TITLE'"),
    ],
)
def test_a_wrong_line_is_named(text: str, message: str) -> None:
    """A data file that cannot be read says where."""
    with pytest.raises(ValueError, match=message):
        read_cases(text)


def test_every_number_in_a_test_is_a_case() -> None:
    """No test of this repository claims a case that there is not."""
    known = {case.number for path in (CASES, BUGS) for case in read_cases(path.read_text())}
    assert {*cases_shown(TREES), *reasons_given(REASONS)} <= known


def test_trees_are_searched_for_test_files(tmp_path: Path) -> None:
    """Tests are found by file name in every folder, and named with their file."""
    folder = tmp_path / "unit" / "deep"
    folder.mkdir(parents=True)
    (folder / "test_x.py").write_text('def test_it():\n    """A1 it."""\n')
    (folder / "helper.py").write_text('def test_no():\n    """A2 no."""\n')
    assert cases_shown([tmp_path / "unit"]) == {"A1": ["unit/deep/test_x.py::test_it"]}
