"""The store takes news in any order and never goes back in time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.cluster.store import Change, Event, MalformedObjectError, Store, version_of
from unit.cluster.objects import pod


def told(changes: list[Change]) -> list[tuple[str, str]]:
    return [(change.event.name, change.object["metadata"]["uid"]) for change in changes]


def test_the_first_list_is_told_apart() -> None:
    """The first list is told as LISTED, what a later one brings as ADDED."""
    store = Store()
    assert told(store.replace([pod("a", 1)], version=5)) == [("LISTED", "uid-a")]
    assert told(store.replace([pod("a", 1), pod("b", 6)], version=6)) == [("ADDED", "uid-b")]


def test_an_older_or_equal_version_is_no_news() -> None:
    """A version that is not numerically newer changes nothing, though its text sorts higher."""
    store = Store()
    store.replace([pod("a", 10)], version=10)
    assert store.watched(pod("a", 9)) == []
    assert store.watched(pod("a", 10)) == []
    assert told(store.watched(pod("a", 11))) == [("MODIFIED", "uid-a")]


def test_a_relist_finds_what_was_missed() -> None:
    """Of five Pods two vanished and one came again under its name: two deletions by old UID, one addition by new."""
    store = Store()
    store.replace([pod(name, 1) for name in "abcde"], version=5)
    changes = store.replace([pod("a", 1), pod("b", 1), pod("c", 1), pod("d", 8, uid="new-d")], version=9)
    assert sorted(told(changes)) == [("ADDED", "new-d"), ("DELETED", "uid-d"), ("DELETED", "uid-e")]
    assert all(change.old is not None for change in changes if change.event is Event.DELETED)


def test_a_new_incarnation_is_two_pieces_of_news() -> None:
    """A watch event with another UID deletes the old object before it adds the new one."""
    store = Store()
    store.replace([pod("a", 1)], version=1)
    assert told(store.watched(pod("a", 7, uid="second"))) == [("DELETED", "uid-a"), ("ADDED", "second")]


def test_a_late_deletion_does_not_touch_the_successor() -> None:
    """The deletion of an old object leaves a newer one of its name alone."""
    store = Store()
    store.replace([], version=1)
    store.written(pod("a", 7, uid="second"))
    assert store.watched_deletion(pod("a", 5, uid="first")) == []
    assert store.get("ns", "a") is not None


def test_an_own_write_is_there_at_once() -> None:
    """An own write is read back before the watch repeats it, and the repetition is no news."""
    store = Store()
    store.replace([pod("a", 1)], version=1)
    assert told(store.written(pod("a", 4))) == [("MODIFIED", "uid-a")]
    assert store.watched(pod("a", 3)) == []
    assert store.watched(pod("a", 4)) == []
    assert store.told == 4


def test_an_own_write_survives_a_list_made_before_it() -> None:
    """A list that was consistent before an own create does not delete what was created."""
    store = Store()
    store.replace([], version=10)
    store.written(pod("a", 12))
    assert store.replace([], version=11) == []
    assert told(store.replace([], version=13)) == [("DELETED", "uid-a")]


def test_a_late_own_write_does_not_bring_back_what_was_deleted() -> None:
    """The answer to an own write that arrives after the watch has told the deletion is no news."""
    store = Store()
    store.replace([pod("a", 1)], version=1)
    store.watched_deletion(pod("a", 9))
    assert store.written(pod("a", 8)) == []
    assert store.get("ns", "a") is None


def test_the_index_follows_every_change() -> None:
    """Objects are found by owner through additions, changes of owner and deletions."""
    store = Store()
    store.replace([pod("a", 1, owner="x"), pod("b", 1, owner="x"), pod("c", 1)], version=1)

    def names(owner: str) -> list[str]:
        return [raw["metadata"]["name"] for raw in store.indexed(owner)]

    assert names("x") == ["a", "b"]
    store.watched(pod("a", 2, owner="y"))
    store.watched_deletion(pod("b", 3, owner="x"))
    assert (names("x"), names("y")) == ([], ["a"])


@pytest.mark.parametrize("text", [None, "None", "", "-1", "1.5", "0x10", 7, "²"])
def test_a_version_is_a_number(text: object) -> None:
    """Only plain decimal text is a version."""
    with pytest.raises(MalformedObjectError):
        version_of(text)


NAMES = "abc"


class World:
    """The truth, as etcd would hold it: every state of every object, and the events between them."""

    def __init__(self) -> None:
        self.version = 1
        self.objects: dict[str, dict[str, Any]] = {}
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.states: list[tuple[int, list[dict[str, Any]]]] = [(1, [])]

    def write(self, name: str) -> dict[str, Any]:
        self.version += 1
        known = self.objects.get(name)
        uid = known["metadata"]["uid"] if known else f"{name}-{self.version}"
        self.objects[name] = pod(name, self.version, uid=uid)
        self._note("MODIFIED" if known else "ADDED", self.objects[name])
        return self.objects[name]

    def delete(self, name: str) -> None:
        known = self.objects.pop(name, None)
        if known is not None:
            self.version += 1
            self._note("DELETED", pod(name, self.version, uid=known["metadata"]["uid"]))

    def _note(self, kind: str, raw: dict[str, Any]) -> None:
        self.events.append((kind, raw))
        self.states.append((self.version, list(self.objects.values())))


@settings(max_examples=300)
@given(st.data())
def test_any_history_converges(data: st.DataObject) -> None:
    """Whatever the order of events, lost watches, relists and late own writes: in the end the store is the
    truth.

    On the way no object goes back to an older version, and handlers see each object live and die in turn.
    """
    world, store = World(), Store()
    unanswered: list[dict[str, Any]] = []
    place = 0  # how many of the world's events the watch has told
    alive: dict[str, tuple[str, int]] = {}

    def take(changes: list[Change]) -> None:
        for change in changes:
            metadata = change.object["metadata"]
            name, uid, version = metadata["name"], metadata["uid"], int(metadata["resourceVersion"])
            if change.event is Event.DELETED:
                assert alive.pop(name)[0] == uid
            elif change.event is Event.MODIFIED:
                assert alive[name][0] == uid
                assert alive[name][1] < version
                alive[name] = (uid, version)
            else:
                assert name not in alive
                alive[name] = (uid, version)

    def relist() -> None:
        nonlocal place
        version, objects = world.states[-1]
        take(store.replace(objects, version=version))
        place = len(world.events)

    relist()
    for _ in range(data.draw(st.integers(1, 25))):
        action = data.draw(
            st.sampled_from(["write", "own", "delete", "tell", "tell", "answer", "relist", "bookmark"])
        )
        if action == "write":
            world.write(data.draw(st.sampled_from(NAMES)))
        elif action == "own":
            unanswered.append(world.write(data.draw(st.sampled_from(NAMES))))
        elif action == "delete":
            world.delete(data.draw(st.sampled_from(NAMES)))
        elif action == "tell" and place < len(world.events):
            kind, raw = world.events[place]
            take(store.watched_deletion(raw) if kind == "DELETED" else store.watched(raw))
            place += 1
        elif action == "answer" and unanswered:
            take(store.written(unanswered.pop(data.draw(st.integers(0, len(unanswered) - 1)))))
        elif action == "relist":
            relist()
        elif action == "bookmark" and place == len(world.events):
            store.tell(world.version)
    while place < len(world.events):
        kind, raw = world.events[place]
        take(store.watched_deletion(raw) if kind == "DELETED" else store.watched(raw))
        place += 1
    for raw in unanswered:
        take(store.written(raw))
    assert {raw["metadata"]["name"]: raw for raw in store} == world.objects
    assert {name: uid for name, (uid, _) in alive.items()} == {
        name: raw["metadata"]["uid"] for name, raw in world.objects.items()
    }
