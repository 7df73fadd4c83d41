"""
The options of the data source: parsed and checked once, when the user's program names them.

Used by `source`, which gets them from Spark as text. The readers and the writer get typed values. Pure.

| option | value |
| --- | --- |
| `broker` | `host:port`, as every executor reaches it; several with commas between if it moved |
| `readFrom` | `leader` (default), or `replica`: of a group, messages come from a replica in sync |
| `topic` | one topic, or several separated by commas; for writing at most one |
| `startingOffsets` | `earliest` (default), `latest`, or JSON `{"orders": {"0": 12}}` |
| `endingOffsets` | `latest` (default), `earliest`, or the same JSON |
| `startingEpochs` | with offsets: the epochs of the brokers in which these were right, as JSON `{"orders": {"0": 3}}` |
| `startingTimestamp` | instead: from what was stored at that time on; milliseconds or ISO 8601 |
| `endingTimestamp` | instead: to what was stored before that time |
| `splitRecords` | the most records in one Spark partition; default: a queue is one partition |
| `includeHeaders` | `true` (default), or `false`: the column `headers` is null |
| `failOnDataLoss` | `true` (default), or `false`: deleted records are a warning |
| `pushFilters` | `true` (default), or `false`: filters are left to Spark |
| `maxRecordsPerBatch` | the most records of a micro-batch; default: all there are |
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headrace_mq._net.address import BrokerAddress
from headrace_mq.message import QueueRef, check_topic
from headrace_mq.spark.offsets import Bound, parse_bound, parse_moment

__all__ = ["Moment", "SourceOptions"]

_KNOWN = (
    "broker", "topic", "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp",
    "splitRecords", "includeHeaders", "failOnDataLoss", "pushFilters", "maxRecordsPerBatch", "readFrom",
    "startingEpochs",
)  # fmt: skip
_FOR_READING = frozenset(_KNOWN[2:])
_FOR_BATCHES = frozenset({"endingOffsets", "endingTimestamp", "pushFilters"})
_FOR_STREAMS = frozenset({"maxRecordsPerBatch", "startingEpochs"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A bound that is a time: `ms` since 1970 UTC."""

    ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options as values; the module's table explains each.

    `given` has the names of the options that the user set.
    """

    broker: str
    topics: tuple[str, ...]
    starting: Bound | Moment
    ending: Bound | Moment
    split_records: int | None
    include_headers: bool
    fail_on_data_loss: bool
    push_filters: bool
    records_per_batch: int | None
    starting_epochs: Mapping[QueueRef, int]
    given: frozenset[str]

    @classmethod
    def parse(
        cls, options: Mapping[str, str], *, check: Callable[[str], object] = BrokerAddress.parse
    ) -> "SourceOptions":
        """Parses all options, for reading and for writing.

        Args:
            options: by name, in any case.
            check: raises ValueError for an address that cannot be used.

        Raises:
            ValueError: one is unknown, unreadable, or contradicts another.
        """
        spelled = {name.lower(): name for name in _KNOWN}
        unknown = sorted(name for name in options if name.lower() not in spelled)
        if unknown:
            raise ValueError(
                f"format('headrace') has no option {unknown[0]!r}; use {', '.join(_KNOWN)}"
            )
        values = {spelled[name.lower()]: text for name, text in options.items()}
        if not values.get("broker", "").strip():
            raise ValueError("format('headrace') needs .option('broker', …)")
        topics = [topic.strip() for topic in values.get("topic", "").split(",")]
        return cls(
            broker=_address(values["broker"], values.get("readFrom"), check),
            topics=tuple(sorted({check_topic(topic) for topic in topics if topic})),
            starting=_bound(values, "starting", "earliest"),
            ending=_bound(values, "ending", "latest"),
            split_records=_count(values, "splitRecords"),
            include_headers=_flag(values, "includeHeaders"),
            fail_on_data_loss=_flag(values, "failOnDataLoss"),
            push_filters=_flag(values, "pushFilters"),
            records_per_batch=_count(values, "maxRecordsPerBatch"),
            starting_epochs=_epochs(values),
            given=frozenset(values),
        )

    def for_batch(self) -> "SourceOptions":
        """Returns these options; raises ValueError unless they fit a read of a batch."""
        self._require_topic()
        self._refuse(_FOR_STREAMS, "readStream", "read")
        return self

    def for_stream(self) -> "SourceOptions":
        """Returns these options; raises ValueError unless they fit a stream."""
        self._require_topic()
        self._refuse(_FOR_BATCHES, "read", "readStream")
        return self

    def for_writing(self) -> "SourceOptions":
        """Returns these options; raises ValueError unless they fit a write."""
        self._refuse(_FOR_READING, "read", "write")
        if len(self.topics) > 1:
            raise ValueError(
                "option 'topic' names several; write to one, or give the rows a column 'topic'"
            )
        return self

    def _require_topic(self) -> None:
        if not self.topics:
            raise ValueError("format('headrace') needs .option('topic', …)")

    def _refuse(self, names: frozenset[str], theirs: str, ours: str) -> None:
        for name in sorted(self.given & names):
            raise ValueError(f"option {name!r} is for spark.{theirs}, not for .{ours}")


def _address(text: str, read_from: str | None, check: Callable[[str], object]) -> str:
    try:
        check(text)
    except ValueError as error:
        raise ValueError(f"option 'broker': {error}") from error
    if read_from is None:
        return text
    try:
        return str(BrokerAddress.parse(text).reading_from(read_from.strip().lower()))
    except ValueError as error:
        raise ValueError(f"option 'readFrom': {error}") from error


def _bound(values: Mapping[str, str], side: str, word: str) -> Bound | Moment:
    offsets, moment = f"{side}Offsets", f"{side}Timestamp"
    if offsets in values and moment in values:
        raise ValueError(f"give {offsets} or {moment}, not both")
    if moment in values:
        return Moment(ms=parse_moment(moment, values[moment]))
    return parse_bound(offsets, values.get(offsets) or word)


def _epochs(values: Mapping[str, str]) -> Mapping[QueueRef, int]:
    text = values.get("startingEpochs")
    if text is None:
        return {}
    try:
        found = parse_bound("startingEpochs", text)
    except ValueError:
        found = "latest"
    if "startingOffsets" not in values or isinstance(found, str):
        raise ValueError(
            'startingEpochs: use JSON such as {"orders": {"0": 3}}, together with startingOffsets'
        )
    return found


def _count(values: Mapping[str, str], name: str) -> int | None:
    text = values.get(name)
    if text is None:
        return None
    if not text.strip().isdigit() or int(text) < 1:
        raise ValueError(f"{name} is a number of records, 1 or more, not {text!r}")
    return int(text)


def _flag(values: Mapping[str, str], name: str) -> bool:
    text = values.get(name, "true").strip().lower()
    if text not in {"true", "false"}:
        raise ValueError(f"{name} is true or false, not {values[name]!r}")
    return text == "true"
