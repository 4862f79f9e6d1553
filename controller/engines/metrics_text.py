"""Prometheus text, read strictly: a figure that decides about a replica is either read exactly or not at all.

Metric names are compared whole (`vllm:num_requests_waiting_by_reason` is not `vllm:num_requests_waiting`), label
values may hold `}`, `,` and escaped quotes, a timestamp may follow the value, and a row that carries a wanted name but
cannot be read is reported, never skipped.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

Labels = tuple[tuple[str, str], ...]
"""Sorted pairs, so that equal label sets compare equal."""

_NAME: Final = re.compile(rb"[ \t]*([a-zA-Z_:][a-zA-Z0-9_:]*)")
_LABEL: Final = rb'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*'
_LABELS: Final = re.compile(rb"[ \t]*\{((?:" + _LABEL + rb"(?:,|(?=[ \t]*\})))*)[ \t]*\}")
_ONE_LABEL: Final = re.compile(_LABEL)
_VALUE: Final = re.compile(rb"[ \t]*([^ \t]+)(?:[ \t]+-?[0-9]+)?[ \t]*")
_NUMBER: Final = re.compile(
    rb"[+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf(?:inity)?|nan)", re.I
)
_ESCAPE: Final = re.compile(r"\\(.)")
_ESCAPED: Final[Mapping[str, str]] = {"n": "\n", "\\": "\\", '"': '"'}
_QUOTED_BYTES: Final = 120
MAX_ROW_BYTES: Final = 4096
"""Many times what an engine writes. A pattern can cost more than its length on a row made to be costly, and this text
comes from somebody else's container: a longer row is none."""


class UnreadableRowError(ValueError):
    """A row of a wanted metric that is no sample."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One row. The value may be NaN or infinite: whether that is possible is for the reader of it to say."""

    name: str
    labels: Labels
    value: float


class SampleCollector:
    """Keeps the wanted samples of a text that arrives in pieces, and the rows of wanted names that are no sample."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = {name.encode() for name in names}
        self._rest = b""
        self.samples: list[Sample] = []
        self.unreadable: list[str] = []

    def feed(self, piece: bytes) -> None:
        *rows, self._rest = (self._rest + piece).split(b"\n")
        for row in rows:
            self._take(row)

    def close(self) -> None:
        """Say that the text ends here. Every row ends in a newline, so what is left over is a row cut short."""
        if self._rest:
            self.unreadable.append(_quoted(self._rest))
            self._rest = b""

    def _take(self, row: bytes) -> None:
        try:
            sample = parse_row(row, self._names)
        except UnreadableRowError as error:
            self.unreadable.append(str(error))
        else:
            if sample is not None:
                self.samples.append(sample)


def samples(text: bytes, metric: str) -> Iterator[tuple[Mapping[str, str], float]]:
    """Labels and value of every row of one metric in a whole text. Raises UnreadableRowError at a row that is none."""
    collector = SampleCollector((metric,))
    collector.feed(text)
    collector.close()
    if collector.unreadable:
        raise UnreadableRowError(f"{metric}: unreadable row {collector.unreadable[0]}")
    return iter([(dict(sample.labels), sample.value) for sample in collector.samples])


def parse_row(row: bytes, names: Collection[bytes]) -> Sample | None:
    """The sample of a row whose metric name is one of `names`, None for any other row; UnreadableRowError."""
    name = _NAME.match(row)
    if name is None or name.group(1) not in names:
        return None
    if len(row) > MAX_ROW_BYTES:
        raise UnreadableRowError(_quoted(row))
    labels = _LABELS.match(row, name.end())
    end = labels.end() if labels else name.end()
    value = _VALUE.fullmatch(row, end)
    if value is None or (labels is None and row[end : end + 1] not in (b" ", b"\t")):
        raise UnreadableRowError(_quoted(row))
    if not _NUMBER.fullmatch(value.group(1)):
        raise UnreadableRowError(_quoted(row))
    return Sample(name.group(1).decode(), _labels(row, labels), float(value.group(1)))


def _labels(row: bytes, found: re.Match[bytes] | None) -> Labels:
    if found is None:
        return ()
    try:
        pairs = [
            (label.group(1).decode(), _unescaped(label.group(2).decode()))
            for label in _ONE_LABEL.finditer(found.group(1))
        ]
    except UnicodeDecodeError:
        raise UnreadableRowError(_quoted(row)) from None
    return tuple(sorted(pairs))


def _unescaped(value: str) -> str:
    return _ESCAPE.sub(lambda found: _ESCAPED.get(found.group(1), found.group(0)), value)


def _quoted(row: bytes) -> str:
    return repr(row[:_QUOTED_BYTES].decode("utf-8", "replace"))
