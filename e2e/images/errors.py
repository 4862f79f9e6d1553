"""The one error of this package: a sentence for the person who ran a build."""

from __future__ import annotations


class ImageError(Exception):
    """An image cannot be made; the text says which, why, and what would help."""
