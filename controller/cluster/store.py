"""What the last list and watch said, guarded by version, so that no late or repeated message turns time back.

Every object carries the version at which it was written, and versions of one kind only grow. The store takes
an object only when it is numerically newer than what it has, which lets three sources (list, watch, the
answers to our own writes) arrive in any order. A watch also says up to which version it has told everything:
an own write at or below that version whose object is absent was deleted since, and does not bring it back.

Objects are the dicts that the API server sent. They are shared and therefore never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, NamedTuple

Raw = Mapping[str, Any]
Key = tuple[str, str]
"""Namespace ("" for a cluster-scoped object) and name."""


class Event(Enum):
    """What happened to an object, as a handler is told."""

    LISTED = "listed"
    """It was there when the first list came: not news, only a start."""
    ADDED = "added"
    MODIFIED = "modified"
    DELETED = "deleted"
    """It is gone, or another object now has its name. `old` is the last state known, perhaps not the last one."""


class Change(NamedTuple):
    event: Event
    old: Raw | None
    new: Raw | None

    @property
    def object(self) -> Raw:
        """The object spoken of: the new one, or the one that is gone."""
        found = self.new if self.new is not None else self.old
        assert found is not None
        return found


class MalformedObjectError(Exception):
    """An object without a name, a UID or a numeric version; it is skipped, not guessed at."""


def version_of(text: object) -> int:
    """A resourceVersion as a number. Raises MalformedObjectError for anything else."""
    if isinstance(text, str) and text.isascii() and text.isdigit():
        return int(text)
    raise MalformedObjectError(f"resourceVersion {text!r} is not a number")


def key_of(raw: Raw) -> Key:
    metadata = raw["metadata"]
    return (metadata.get("namespace") or "", metadata["name"])


def owner_uids(raw: Raw) -> Iterator[str]:
    """UIDs of the controlling owner: the index of everything that belongs to a deployment."""
    for owner in raw["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            yield owner["uid"]


class _Entry(NamedTuple):
    version: int
    uid: str
    raw: Raw


class Store:
    """Objects of one kind by (namespace, name), and an index over them.

    `index` names the values under which an object is found by `indexed`; the default is the UID of its
    controller.
    """

    def __init__(self, *, index: Callable[[Raw], Iterable[str]] = owner_uids) -> None:
        self._entries: dict[Key, _Entry] = {}
        self._index_of = index
        self._indexed: dict[str, dict[Key, None]] = {}
        self._told = 0

    @property
    def told(self) -> int:
        """The version up to which list and watch have told everything."""
        return self._told

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Raw]:
        return (entry.raw for entry in self._entries.values())

    def get(self, namespace: str, name: str) -> Raw | None:
        entry = self._entries.get((namespace, name))
        return None if entry is None else entry.raw

    def indexed(self, value: str) -> list[Raw]:
        """Objects for which the index yields `value`, in the order in which they were first seen."""
        return [self._entries[key].raw for key in self._indexed.get(value, ())]

    def replace(self, objects: Iterable[Raw], *, version: int) -> list[Change]:
        """Take a whole list that was consistent at `version`; what it does not hold is gone.

        What was written or watched after that version stays as it is.
        """
        changes: list[Change] = []
        listed: set[Key] = set()
        first = Event.ADDED if self._told else Event.LISTED
        for raw in objects:
            listed.add(key_of(raw))
            changes += self._put(raw, added=first)
        for key, entry in list(self._entries.items()):
            if key not in listed and entry.version <= version:
                changes.append(self._drop(key))
        self._told = max(self._told, version)
        return changes

    def watched(self, raw: Raw) -> list[Change]:
        """Take an ADDED or MODIFIED of the watch."""
        changes = self._put(raw)
        self.tell(version_of(raw["metadata"].get("resourceVersion")))
        return changes

    def watched_deletion(self, raw: Raw) -> list[Change]:
        """Take a DELETED of the watch; an object of that name written after it stays."""
        version, key = version_of(raw["metadata"].get("resourceVersion")), key_of(raw)
        self.tell(version)
        entry = self._entries.get(key)
        return [self._drop(key)] if entry is not None and entry.version <= version else []

    def written(self, raw: Raw) -> list[Change]:
        """Take the API server's answer to an own write, ahead of the watch that will repeat it."""
        if (
            key_of(raw) not in self._entries
            and version_of(raw["metadata"].get("resourceVersion")) <= self._told
        ):
            return []
        return self._put(raw)

    def tell(self, version: int) -> None:
        """Everything up to `version` has been told (a bookmark, or an event at that version)."""
        self._told = max(self._told, version)

    def _put(self, raw: Raw, *, added: Event = Event.ADDED) -> list[Change]:
        key, metadata = key_of(raw), raw["metadata"]
        entry = _Entry(version_of(metadata.get("resourceVersion")), metadata["uid"], raw)
        known = self._entries.get(key)
        if known is None:
            self._set(key, entry)
            return [Change(added, None, raw)]
        if entry.version <= known.version:
            return []
        if entry.uid != known.uid:
            # Deleted and made anew while nobody told us: two pieces of news, about two objects.
            gone = self._drop(key)
            self._set(key, entry)
            return [gone, Change(Event.ADDED, None, raw)]
        self._unindex(key, known.raw)
        self._set(key, entry)
        return [Change(Event.MODIFIED, known.raw, raw)]

    def _set(self, key: Key, entry: _Entry) -> None:
        self._entries[key] = entry
        for value in self._index_of(entry.raw):
            self._indexed.setdefault(value, {})[key] = None

    def _drop(self, key: Key) -> Change:
        entry = self._entries.pop(key)
        self._unindex(key, entry.raw)
        return Change(Event.DELETED, entry.raw, None)

    def _unindex(self, key: Key, raw: Raw) -> None:
        for value in self._index_of(raw):
            keys = self._indexed[value]
            keys.pop(key, None)
            if not keys:
                del self._indexed[value]
