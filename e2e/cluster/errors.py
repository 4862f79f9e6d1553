"""The one error this package raises for what a person can mend: a message that says what and how."""

from __future__ import annotations


class ClusterError(Exception):
    """Something about the machine or the request stops the cluster; the text is for the person at the keys."""
