"""The book of a load: who served what, and what counts as lost."""

from __future__ import annotations

from e2e.load.book import Book, End, Tally


def test_open_streams_of_a_pod_by_what_is_left() -> None:
    """Streams open on a Pod are counted by the seconds that they have to go, from their first chunk on."""
    book = Book()
    for expected in (5.0, 20.0):
        request = book.open(prompt=str(expected), expected=expected, now=0.0)
        request.pod, request.first_chunk = "one", 1.0
    other = book.open(prompt="x", expected=20.0, now=0.0)
    other.pod = "two"
    assert book.open_on("one", now=4.0) == 2
    assert book.open_on("one", now=4.0, min_left=14.0) == 1
    assert book.open_on("one", now=30.0) == 0


def test_tally_of_a_span() -> None:
    """A span counts what was open in it: ended before or begun after is not its business."""
    book = Book()
    ends = [(0, 5, End.FINISHED), (2, 12, End.FINISHED), (3, 11, End.CUT), (11, 11.5, End.FAILED)]
    for started, ended, end in ends:
        request = book.open(prompt="p", expected=1.0, now=started)
        book.close(request, end=end, now=ended)
    book.open(prompt="p", expected=1.0, now=13.0)
    stopped = book.open(prompt="p", expected=1.0, now=11.0)
    book.close(stopped, end=End.STOPPED, now=14.0)
    assert book.tally(since=10.0) == Tally(started=4, finished=1, cut=1, failed=1, open=1)
    assert book.tally(since=10.0, until=12.5) == Tally(started=3, finished=1, cut=1, failed=1, open=0)
    assert [request.end for request in book.losses()] == [End.CUT, End.FAILED]
