"""What the demo prints at its end."""

from __future__ import annotations

from e2e.demo.report import Moment, Outcome, table, timeline


def test_table_lines_up() -> None:
    """Every row has its figures under their headings, however long the first column is."""
    text = table(
        [
            Outcome("short", started=101, finished=101, cut=0, failed=0),
            Outcome("a much longer way to leave than that", started=33, finished=25, cut=6, failed=2),
        ]
    )
    lines = text.splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[3].split()[-4:] == ["33", "25", "6", "2"]
    assert lines[3].endswith("2") and lines[0].endswith("failed")


def test_timeline_is_in_seconds_from_the_edit() -> None:
    """One line a moment, seconds first."""
    assert (
        timeline([Moment(0.0, "edit"), Moment(25.13, "Deleting")]) == "     0.0 s  edit\n    25.1 s  Deleting"
    )
