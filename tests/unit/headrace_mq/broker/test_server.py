import asyncio
import importlib
import re
from pathlib import Path
from typing import NamedTuple

import pytest
import uvloop
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import headrace_mq
from headrace_mq._runtime.files import SystemFiles
from headrace_mq.broker import storage
from headrace_mq.broker.groups.offsets import KeptOffsets
from headrace_mq.broker.server import Broker
from headrace_mq.errors import BrokerStopping, DataCorrupt, MessageQueueError, ResponseCode
from headrace_mq.message import QueueRef
from headrace_mq.name_settings import NameServerSettings
from headrace_mq.protocol.batch import decode_records, split_batches
from headrace_mq.protocol.bodies import (
    CommitOffsets,
    CommittedOffset,
    Fetch,
    FetchFrom,
    GetOffsets,
    Hello,
    OffsetsAnswer,
    QueueRanges,
    QueueRangesAnswer,
    decode,
    decode_fetch_answer,
    encode,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import FrameReader, encode_frame
from headrace_mq.settings import BrokerSettings, StoreSettings
from headrace_mq.store.log.commit_gate import Durable
from headrace_mq.store.message_store import MessageStore

METADATA = ("topics.json", "offsets.json", "broker.json")


async def bodies_of(client, topic: str, queue_id: int = 0) -> list[bytes]:
    request = Fetch([FetchFrom(topic, queue_id, 0)], 1 << 20, 0)
    _, batches = decode_fetch_answer(await client.ask(RequestCode.FETCH, request))
    return [record.body for view in split_batches(batches) for record in decode_records(view)]


async def commit(client, offset: int) -> None:
    request = CommitOffsets("g", "", 0, [CommittedOffset("t", 0, offset)])
    await client.ask(RequestCode.COMMIT_OFFSETS, request)


async def committed(client) -> int:
    body = await client.ask(RequestCode.GET_OFFSETS, GetOffsets("g", ["t"]))
    return decode(OffsetsAnswer, body).offsets[0].offset


# --- start ---------------------------------------------------------------------------------------


async def test_acknowledged_messages_are_there_after_a_restart(start, connect, batch) -> None:
    first = await start()
    client = await connect(first)
    await client.create("t", 3, "forever")
    await client.produce(batch("t", 0, b"a", b"b"))
    await commit(client, 1)
    await first.aclose()

    second = await start()
    client = await connect(second, "")
    assert (await client.hello()).epoch == 2
    assert await bodies_of(client, "t") == [b"a", b"b"]
    assert await committed(client) == 1
    assert (await client.produce(batch("t", 0, b"c"))).results[0].base_offset == 2


async def test_offsets_reach_the_disk_while_the_broker_runs(start, connect, batch, until) -> None:
    broker = await start(offsets_flush_ms=1)
    client = await connect(broker)
    await client.create("t", 1)
    await client.produce(batch("t", 0))
    await commit(client, 1)
    file = broker._state.offsets._file
    await until(lambda: file.read() == KeptOffsets({"g": {"t": {0: 1}}}))


@pytest.mark.parametrize("name", METADATA)
async def test_a_damaged_file_stops_the_start_and_says_what_to_do(
    start, settings, connect, batch, name: str
) -> None:
    broker = await start()
    client = await connect(broker)
    await client.create("t", 1)
    await client.produce(batch("t", 0, b"a"))
    await broker.aclose()
    (path,) = settings().store.directory.rglob(name)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"x")
    with pytest.raises(DataCorrupt, match=name) as caught:
        await Broker(settings()).start()
    assert "headrace store check" in str(caught.value)
    assert "headrace store repair" in str(caught.value)
    path.write_bytes(whole)
    assert await bodies_of(await connect(await start()), "t") == [b"a"]


async def test_a_missing_segment_stops_the_start_and_names_the_commands(
    start, settings, connect, batch
) -> None:
    broker = await start()
    client = await connect(broker)
    await client.create("t", 1)
    await client.produce(batch("t", 0, b"a"))
    await broker.aclose()
    (segment,) = settings().store.directory.rglob("*.log")
    segment.unlink()
    with pytest.raises(DataCorrupt, match="segment file is missing") as caught:
        await Broker(settings()).start()
    assert f"headrace store check {settings().store.directory}" in str(caught.value)


@pytest.mark.parametrize("name", METADATA)
async def test_a_lost_file_never_means_that_there_are_no_messages(
    start, settings, connect, batch, name: str
) -> None:
    broker = await start()
    client = await connect(broker)
    await client.create("t", 1, "forever")
    await client.produce(batch("t", 0, b"a"))
    await broker.aclose()
    (path,) = settings().store.directory.rglob(name)
    path.unlink()
    client = await connect(await start(), "")
    assert (await client.hello()).epoch > 1
    assert await bodies_of(client, "t") == [b"a"]


async def test_two_brokers_never_share_a_directory(broker, settings) -> None:
    with pytest.raises(MessageQueueError, match="another broker"):
        await Broker(settings()).start()


async def test_an_address_in_use_fails_the_start_and_frees_the_directory(
    broker, settings, tmp_path: Path
) -> None:
    port = int(broker.address.rsplit(":", 1)[1])
    store = StoreSettings(directory=tmp_path / "other")
    with pytest.raises(MessageQueueError, match="cannot listen"):
        await Broker(settings(store=store, port=port)).start()
    second = Broker(settings(store=store))
    await second.start()
    await second.aclose()


async def test_a_broker_keeps_its_files_in_the_folder_of_its_settings(settings) -> None:
    class Elsewhere(SystemFiles):
        def open(self, path: Path, *, create: bool = False) -> int:
            seen.add(path.name)
            return super().open(path, create=create)

    seen: set[str] = set()
    broker = Broker(settings(), files=Elsewhere())
    await broker.start()
    await broker.aclose()
    assert {"lock", *(f"{name}.new" for name in METADATA)} <= seen


async def test_a_broker_starts_once(broker) -> None:
    with pytest.raises(ValueError, match="once"):
        await broker.start()


async def test_a_broker_that_never_started_can_be_closed(settings) -> None:
    broker = Broker(settings())
    await broker.aclose()
    assert broker.address == ""


# --- retention -----------------------------------------------------------------------------------


class Stretch(NamedTuple):
    base: int
    end: int
    bytes: int
    last_ms: int
    sealed: bool
    next_offsets: dict[QueueRef, int]


class OneBatchSegments(MessageStore):
    """The real store, as if every batch of one queue stood in a segment of its own."""

    queue = QueueRef("t", 0)
    gone = 0

    def range(self, queue: QueueRef) -> tuple[int, int]:
        first, end = super().range(queue)
        return max(first, self.gone), end

    def segments(self, log: str) -> list[Stretch]:
        if dict(self.queues()).get(self.queue) != log:
            return []
        first, end = self.range(self.queue)
        return [
            Stretch(at, at + 1, 1, self._clock.now_ms(), at < end - 1, {self.queue: at + 1})
            for at in range(first, end)
        ]

    def delete_segments(self, log: str, before: int) -> int:
        held, self.gone = self.gone, before
        return before - held


async def test_the_timer_deletes_and_readers_below_get_a_defined_answer(
    start, connect, batch, until, monkeypatch
) -> None:
    monkeypatch.setattr(storage, "MessageStore", OneBatchSegments)
    broker = await start(
        stored={"retention_interval_ms": 1, "transient_bytes_max": 2, "unconsumed_ms_max": 0}
    )
    client = await connect(broker)
    await client.create("t", 1)
    for body in (b"a", b"b"):
        await client.produce(batch("t", 0, body))
    await commit(client, 1)
    for body in (b"c", b"d"):
        await client.produce(batch("t", 0, body))
    await until(lambda: broker._state.store.range(QueueRef("t", 0)) == (2, 4))

    request = Fetch([FetchFrom("t", 0, 1)], 1 << 20, 60_000)
    answer, batches = decode_fetch_answer(await client.ask(RequestCode.FETCH, request))
    (state,) = answer.queues
    assert (state.first, state.end, state.code) == (2, 4, ResponseCode.OFFSET_OUT_OF_RANGE)
    assert not batches
    # The group's offset is told as it is, below what the queue holds: nothing hides the loss.
    assert await committed(client) == 1
    ranges = await client.ask(RequestCode.QUEUE_RANGES, QueueRanges(["t"]))
    assert decode(QueueRangesAnswer, ranges).ranges[0].first == 2


async def test_a_group_that_lags_keeps_its_messages(
    start, connect, batch, until, monkeypatch
) -> None:
    monkeypatch.setattr(storage, "MessageStore", OneBatchSegments)
    broker = await start(stored={"retention_interval_ms": 1, "transient_bytes_max": 1})
    client = await connect(broker)
    await client.create("t", 1)
    for body in (b"a", b"b", b"c", b"d"):
        await client.produce(batch("t", 0, body))
    store = broker._state.store
    await commit(client, 2)
    await until(lambda: store.range(QueueRef("t", 0))[0] == 2)
    for _ in range(3):
        await client.ask(RequestCode.DESCRIBE_BROKER)
    assert store.range(QueueRef("t", 0)) == (2, 4)
    await commit(client, 4)
    await until(lambda: store.range(QueueRef("t", 0)) == (3, 4))


# --- stop ----------------------------------------------------------------------------------------


async def test_stopping_finishes_what_is_in_flight_and_takes_nothing_new(
    broker, connect, batch
) -> None:
    client = await connect(broker)
    await client.create("t", 1)
    flush = Durable(loop=asyncio.get_running_loop())
    broker._state.acknowledgements._durable = lambda: flush
    in_flight = client.send(RequestCode.PRODUCE, batch("t", 0, b"a"))
    await client.ask(RequestCode.DESCRIBE_BROKER)
    closing = asyncio.ensure_future(broker.aclose())
    await asyncio.sleep(0)
    late = await client.answer(client.send(RequestCode.PRODUCE, batch("t", 0, b"b")))
    assert late.code == BrokerStopping.code
    with pytest.raises(ConnectionRefusedError):
        await connect(broker)
    assert not closing.done()
    flush.settle(None)
    assert (await client.answer(in_flight)).code == 0
    assert await client.closed()
    await closing


async def test_stopping_answers_parked_fetches(broker, connect) -> None:
    client = await connect(broker)
    await client.create("t", 1)
    parked = client.send(RequestCode.FETCH, Fetch([FetchFrom("t", 0, 0)], 1, 60_000))
    await client.ask(RequestCode.DESCRIBE_BROKER)
    await broker.aclose()
    assert (await client.answer(parked)).code == 0
    assert await client.closed()


async def test_closing_twice_is_closing_once(broker) -> None:
    await asyncio.gather(broker.aclose(), broker.aclose())
    await broker.aclose()


# --- hostile bytes -------------------------------------------------------------------------------

code = st.one_of(st.sampled_from(list(RequestCode)), st.integers(0, 65_535))
frame = st.builds(
    lambda code, correlation, flags, body: encode_frame(code, correlation, body, flags=flags),
    code,
    st.integers(0, 2**64 - 1),
    st.integers(0, 255),
    st.one_of(st.binary(max_size=200), st.sampled_from([b"\x91" * 50_000, b"\x92\xa1\xff\x90"])),
)
HELLO = encode_frame(RequestCode.HELLO, 1, encode(Hello("fuzz", 1, 1)))


@hypothesis_settings(max_examples=60, deadline=None)
@given(
    st.booleans(),
    st.lists(st.one_of(st.binary(max_size=200), frame), max_size=5),
)
def test_no_bytes_disturb_other_connections(said_hello: bool, chunks: list[bytes]) -> None:
    brokers.attack((HELLO if said_hello else b"") + b"".join(chunks))


class RunningBroker:
    """A broker on a loop of its own, for tests that hypothesis drives from outside of any loop."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self.broker: Broker | None = None

    def open(self, directory: Path) -> None:
        self.broker = Broker(BrokerSettings(store=StoreSettings(directory=directory), port=0))
        self.runner.run(self.broker.start())

    def close(self) -> None:
        self.runner.run(self.broker.aclose())
        self.runner.close()

    def attack(self, data: bytes) -> None:
        self.runner.run(self._attack(data))

    async def _attack(self, data: bytes) -> None:
        host, port = self.broker.address.rsplit(":", 1)
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(data)
        writer.write_eof()
        try:
            answered = await reader.read()
        except ConnectionResetError:
            answered = b""
        writer.transport.abort()
        # Whatever comes back is made of whole frames.
        assert sum(len(frame.body) + 16 for frame in FrameReader(1 << 24).feed(answered)) == len(
            answered
        )
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(HELLO)
        head = await reader.readexactly(16)
        assert head[4:6] == b"\x00\x00"
        writer.transport.abort()


brokers = RunningBroker()


@pytest.fixture(scope="module", autouse=True)
def broker_under_attack(tmp_path_factory: pytest.TempPathFactory):
    brokers.open(tmp_path_factory.mktemp("fuzz") / "store")
    yield
    brokers.close()


async def test_a_broker_runs_for_a_block_and_keeps_what_it_was_sent(tmp_path: Path) -> None:
    settings = BrokerSettings(store=StoreSettings(directory=tmp_path / "store"), port=0)
    message = headrace_mq.Message(topic="t", key="k", body=b"1")
    async with Broker(settings) as running, headrace_mq.Producer(running.address) as producer:
        assert (await producer.send(message)).offset == 0
    async with Broker(settings) as running, headrace_mq.AdminClient(running.address) as admin:
        assert sum(queue.end for queue in await admin.ranges(["t"])) == 1


# --- ARCHITECTURE.md -----------------------------------------------------------------------------

ARCHITECTURE = Path(__file__).parents[4] / "mq" / "ARCHITECTURE.md"
LIMITS = re.findall(r"^\| .* \| (\d+) \| `([\w.]+)` \|$", ARCHITECTURE.read_text("utf-8"), re.M)


def test_the_limits_table_covers_every_limit_of_the_settings() -> None:
    ends = ("_max", "_ms", "_per_minute", "_reserved")
    fields = {name for name in BrokerSettings.__struct_fields__ if name.endswith(ends)}
    named = {name for _, name in LIMITS if "." not in name}
    others = {*NameServerSettings.__struct_fields__} - {*BrokerSettings.__struct_fields__}
    assert fields == named - others


@pytest.mark.parametrize(("value", "name"), LIMITS)
def test_the_limits_table_shows_the_values_of_the_code(value: str, name: str) -> None:
    module, _, constant = name.rpartition(".")
    if module:
        held = getattr(importlib.import_module(f"headrace_mq.{module}"), constant)
    else:
        settings = BrokerSettings(store=StoreSettings(directory=Path()))
        held = getattr(settings if hasattr(settings, name) else NameServerSettings(), name)
    assert held == int(value)


async def test_the_broker_indexes_keys_by_itself(broker, client, batch, until) -> None:
    await client.produce(batch("t", 0, b"1"))
    assert broker._state is not None
    log = broker._state.store._logs["transient"]
    await until(lambda: log.keys.lookup(0, 0, from_ms=0, to_ms=1, end=log.end).positions == [])


async def test_keys_are_indexed_in_steps_that_grow_while_much_is_left(
    broker, until, monkeypatch
) -> None:
    assert broker._state is not None
    steps: list[int] = []

    def index_keys(bytes_max: int) -> bool:
        steps.append(bytes_max)
        return len(steps) % 30 > 0

    monkeypatch.setattr(broker._state.store, "index_keys", index_keys)
    await until(lambda: len(steps) > 30)
    assert steps[0] == steps[30] == 2 << 10
    assert steps[:30] == sorted(steps[:30])
    assert steps[29] == 32 << 10


async def test_a_broker_that_is_locked_out_takes_no_epoch(broker, settings) -> None:
    path = settings().store.directory / "metadata" / "broker.json"
    before = path.read_bytes()
    with pytest.raises(MessageQueueError, match="another broker uses"):
        await Broker(settings()).start()
    assert path.read_bytes() == before


async def test_a_broker_has_a_state_from_its_start_to_its_stop(settings) -> None:
    broker = Broker(settings())
    assert broker.state is None
    await broker.start()
    assert broker.state is not None
    assert broker.state.address == broker.address
    await broker.aclose()
    assert broker.state is None
