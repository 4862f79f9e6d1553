"""A streaming load that keeps a book of every request, and the rules by which a run proves anything at all."""

from e2e.load.book import Book, End, Request, Tally
from e2e.load.generator import Load, new_session, stream
from e2e.load.void import void_reasons

__all__ = ["Book", "End", "Load", "Request", "Tally", "new_session", "stream", "void_reasons"]
