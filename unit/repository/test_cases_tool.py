"""`make cases`: what counts as a test of a case, and what is said to be missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.cases import (
    CASES,
    TREES,
    Case,
    cases_shown,
    opening_numbers,
    read_cases,
    report,
    shown_by,
)


@pytest.mark.parametrize(
    ("docstring", "numbers"),
    [
        ("G6 All zero is Idle.", ("G6",)),
        ("A1, A2 and A3: budgets.", ("A1", "A2", "A3")),
        ("B11: a change of mind.", ("B11",)),
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
    """Each owner's cases without a test are named, a shared case with both owners, and unknown numbers too."""
    cases = [Case("A1", ("A",), "one"), Case("A2", ("A", "B"), "two"), Case("B1", ("B",), "three")]
    tests = {"A1": ["f::t"], "N99": ["f::u"]}
    assert list(report(cases, tests, ["A", "B"])) == [
        "A: 1 of 2 cases have a test",
        "  A2   two",
        "B: 0 of 2 cases have a test",
        "  A2   two",
        "  B1   three",
        "no case is called N99: f::u",
    ]


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
    known = {case.number for case in read_cases(CASES.read_text())}
    assert set(cases_shown(TREES)) <= known


def test_trees_are_searched_for_test_files(tmp_path: Path) -> None:
    """Tests are found by file name in every folder, and named with their file."""
    folder = tmp_path / "unit" / "deep"
    folder.mkdir(parents=True)
    (folder / "test_x.py").write_text('def test_it():\n    """A1 it."""\n')
    (folder / "helper.py").write_text('def test_no():\n    """A2 no."""\n')
    assert cases_shown([tmp_path / "unit"]) == {"A1": ["unit/deep/test_x.py::test_it"]}
