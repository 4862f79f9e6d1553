"""An image is built once per content, whoever asks and whatever was killed before."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from e2e.images.archive import RunConfig
from e2e.images.build import KEEP, build, build_image
from e2e.images.debian import Release
from e2e.images.errors import ImageError
from e2e.images.recipe import Image, Layer, Workshop, image_key, layer_keys

RELEASE = Release("debian", "bookworm", "amd64")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own."""
    monkeypatch.setenv("EBB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Filler:
    """Counts how often a layer is made."""

    def __init__(self) -> None:
        self.count = 0
        self.lock = threading.Lock()

    def layer(self, name: str, *inputs: str) -> Layer:
        def fill(root: Path, workshop: Workshop) -> None:
            with self.lock:
                self.count += 1
            (root / "content").write_text(" ".join(inputs))

        return Layer(name, fill, inputs)


def image(*layers: Layer) -> Image:
    return Image(layers, RunConfig(("run",)))


def made(picture: Image, *, name: str = "thing", progress: Callable[[str], None] = print) -> Path:
    return build_image(name, picture, release=RELEASE, progress=progress).archive


def base() -> Layer:
    """A lowest layer that looks like one with a Python."""

    def fill(root: Path, workshop: Workshop) -> None:
        (root / "usr" / "bin").mkdir(parents=True)
        (root / "usr" / "bin" / "python3.11").write_text("")

    return Layer("base", fill)


def test_an_image_is_built_once() -> None:
    """The second call makes nothing, and its answer is the first one's."""
    filler = Filler()
    first = build_image("thing", image(filler.layer("app", "a")), release=RELEASE, progress=print)
    second = build_image("thing", image(filler.layer("app", "a")), release=RELEASE, progress=print)
    assert first == second
    assert filler.count == 1
    assert first.archive.exists()
    assert first.reference == f"ebb.local/thing:{first.archive.stem.removeprefix('thing-')}"


def test_concurrent_builds_make_a_layer_once() -> None:
    """Eight that want the same image at the same time make one."""
    filler = Filler()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: made(image(filler.layer("app", "a"))), range(8)))
    assert len(set(found)) == 1
    assert filler.count == 1


def test_a_lower_layer_is_shared_and_an_upper_one_rebuilt() -> None:
    """A change above leaves what is below alone; the upper layer is told the Python of the lowest."""
    filler = Filler()
    seen: list[str] = []

    def upper(text: str) -> Layer:
        def fill(root: Path, workshop: Workshop) -> None:
            seen.append(workshop.python)
            (root / "x").write_text(text)

        return Layer("upper", fill, (text,))

    middle = filler.layer("middle", "a")
    assert made(image(base(), middle, upper("one"))) != made(image(base(), middle, upper("two")))
    assert filler.count == 1
    assert seen == ["3.11", "3.11"]


def test_a_failed_build_leaves_nothing_behind(cache: Path) -> None:
    """A layer that cannot be made leaves no archive, and the next try begins with an empty folder."""
    found: list[list[Path]] = []

    def fill(root: Path, workshop: Workshop) -> None:
        found.append(sorted(root.iterdir()))
        (root / "half").write_text("")
        if len(found) == 1:
            raise ImageError("no network")

    layer = Layer("app", fill)
    with pytest.raises(ImageError, match="no network"):
        made(image(layer))
    assert not list(cache.rglob("*.tar"))
    assert made(image(layer)).exists()
    assert found == [[], []]


def test_old_outcomes_are_removed(cache: Path) -> None:
    """The cache keeps the last few outcomes of a recipe, so that edits do not fill the disk."""
    archives = [made(image(Filler().layer("app", str(number)))) for number in range(KEEP + 2)]
    assert [archive.exists() for archive in archives] == [False, False, *[True] * KEEP]
    assert len([path for path in (cache / "images" / "layers").iterdir() if path.is_dir()]) == KEEP


def test_the_key_follows_all_that_decides_the_content() -> None:
    """Inputs, the layer below, the code that fills, the start command and the release each change the name."""
    plain = image(base(), Filler().layer("app", "a"))
    same = image(base(), Filler().layer("app", "a"))
    assert image_key(plain, RELEASE) == image_key(same, RELEASE)

    def other_fill(root: Path, workshop: Workshop) -> None:
        raise NotImplementedError

    variants = [
        image(base(), Filler().layer("app", "b")),
        image(Filler().layer("base"), Filler().layer("app", "a")),
        image(base(), replace(Filler().layer("app", "a"), fill=other_fill)),
        replace(plain, config=RunConfig(("other",))),
    ]
    keys = {image_key(variant, RELEASE) for variant in variants} | {
        image_key(plain, replace(RELEASE, codename="trixie"))
    }
    assert len(keys | {image_key(plain, RELEASE)}) == 6
    assert layer_keys(plain, RELEASE)[0] == layer_keys(variants[0], RELEASE)[0]


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    """A name without a recipe is an error that lists the recipes."""
    with pytest.raises(ImageError, match=r"no recipe for 'nothing': sandbox, python-base"):
        build("nothing")
