"""A broker with a login, and every kind of client: who gets in, what they may do, and when that ends."""

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from pydantic import SecretStr
from structlog.testing import capture_logs

from headrace_mq import (
    AdminClient,
    BlockingReader,
    Consumer,
    Decision,
    Message,
    Producer,
    TransactionalProducer,
)
from headrace_mq._net.link import Link, LinkSettings
from headrace_mq._net.login import public_key_of
from headrace_mq.broker.server import Broker
from headrace_mq.broker.users.logins import FAILURES_MAX
from headrace_mq.errors import (
    FrameTooLarge,
    LoginFailed,
    MessageQueueError,
    NameTaken,
    NotPermitted,
)
from headrace_mq.protocol.bodies import ErrorAnswer, Hello, decode, encode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import FrameReader, encode_frame, encode_frame_head
from headrace_mq.settings import BrokerSettings, ConsumerSettings, ProducerSettings, StoreSettings
from headrace_mq.supervisor.supervisor import is_answered
from headrace_mq.testing.embedded import DIRECTORY, SEGMENT_BYTES, memory_disk
from tests.integration.mq.secured_broker import PASSWORD, QUICK, Door, guarded


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with guarded() as running:
        yield running


@pytest.fixture
def door(tmp_path: Path, broker: Broker) -> Door:
    folder = tmp_path / "passwords"
    folder.mkdir()
    return Door(folder, broker)


async def test_a_user_sends_and_reads_what_rules_allow_and_nothing_else(door: Door) -> None:
    ann = await door.add(
        "ann",
        "publish topic:orders",
        "create topic:orders",
        "consume topic:orders",
        "consume group:kitchen",
    )
    async with Producer(ann, ProducerSettings(**QUICK)) as producer:
        await producer.send(Message(topic="orders", key="k", body=b"tea"))
        with pytest.raises(NotPermitted, match="'ann' may not create topic:bills"):
            await producer.send(Message(topic="bills", body=b"tea"))
    settings = ConsumerSettings(**QUICK)
    async with Consumer(ann, group="kitchen", topics=["orders"], settings=settings) as consumer:
        while not await consumer.poll():
            pass
    async with AdminClient(ann) as admin:
        with pytest.raises(NotPermitted, match="may not administer cluster"):
            await admin.add_user("eve", SecretStr("x"), admin=True)
        with pytest.raises(NotPermitted, match="may not delete topic:orders"):
            await admin.delete_queues("orders")

    def read() -> int:
        with BlockingReader(ann) as reader:
            return sum(one.end for one in reader.ranges(["orders"]))

    assert await asyncio.to_thread(read) == 1


async def test_scheduled_messages_need_permission_for_their_own_topic(door: Door) -> None:
    root = door.of("root")
    async with AdminClient(root) as admin:
        for topic in ("orders", "bills"):
            await admin.create_topic(topic, 1)
    ann = await door.add("ann", "publish topic:orders")
    async with Producer(ann, ProducerSettings(**QUICK)) as producer:
        await producer.schedule(Message(topic="orders", body=b"later"), delay_ms=60_000)
        with pytest.raises(NotPermitted, match="publish topic:bills"):
            await producer.schedule(Message(topic="bills", body=b"later"), delay_ms=60_000)


async def test_transactions_need_permission_for_their_topics_and_their_group(door: Door) -> None:
    ann = await door.add("ann", "publish topic:orders", "create topic:orders")
    order = Message(topic="orders", key="k", body=b"tea")

    async def check(_pending: object) -> Decision:
        return Decision.COMMIT

    async with (
        AdminClient(door.of("root")) as root,
        TransactionalProducer(ann, group="tills", checker=check) as producer,
    ):
        with pytest.raises(NotPermitted, match="publish group:tills"):
            await producer.begin(order)
        await root.set_rule("ann", "publish", "group:tills", allows=True)
        transaction = await producer.begin(order)
        await transaction.commit()
        await root.create_topic("bills", 1)
        await root.set_rule("ann", "read", "topic:bills", allows=True)
        with pytest.raises(NotPermitted, match="publish topic:bills"):
            await producer.begin(Message(topic="bills", key="k", body=b"3 EUR"))


async def test_a_change_takes_effect_on_open_connections_at_once(door: Door) -> None:
    ann = await door.add(
        "ann", "publish topic:orders", "create topic:orders", "consume topic:orders"
    )
    async with (
        AdminClient(door.of("root")) as root,
        Producer(ann, ProducerSettings(**QUICK)) as producer,
    ):
        await producer.send(Message(topic="orders", body=b"1"))
        await root.set_rule("ann", "publish", "topic:orders", allows=False)
        with pytest.raises(NotPermitted):
            await producer.send(Message(topic="orders", body=b"2"))
        await root.set_rule("ann", "publish", "topic:orders", allows=True)
        await producer.send(Message(topic="orders", body=b"3"))
        found = await root.explain("ann", "publish", "topic:orders")
        assert (found.allowed, found.rule) == (True, "allow ann publish topic:orders")


async def test_a_fetch_that_waits_gets_no_message_after_its_permission_ended(door: Door) -> None:
    ann = await door.add(
        "ann", "publish topic:t", "create topic:t", "consume topic:t", "consume group:g"
    )
    async with (
        AdminClient(door.of("root")) as root,
        Producer(ann, ProducerSettings(**QUICK)) as producer,
        Consumer(ann, group="g", topics=["t"], settings=ConsumerSettings(**QUICK)) as consumer,
    ):
        await producer.send(Message(topic="t", body=b"1"))
        while not await consumer.poll():
            pass
        assert door.broker._state is not None
        while not len(door.broker._state.long_poll):
            await asyncio.sleep(0)
        await root.set_rule("ann", "consume", "topic:t", allows=False)
        waiting = asyncio.ensure_future(consumer.poll())
        with capture_logs() as logs:
            await producer.send(Message(topic="t", key="k", body=b"2"))
            while not any(one.get("resource") == "topic:t" for one in logs):
                await producer.send(Message(topic="t", body=b"2"))
        assert not waiting.done()
        await root.set_rule("ann", "consume", "topic:t", allows=True)
        assert (await waiting)[0].body == b"2"


async def test_a_user_does_not_take_the_replies_of_another(door: Door) -> None:
    ann = await door.add("ann", "read cluster")
    settings = LinkSettings((1, 1))
    holder = Link(door.of("root"), client_id="same", settings=settings)
    await holder.start(5_000)
    thief = Link(ann, client_id="same", settings=settings)
    with pytest.raises(NameTaken, match="another user"):
        await thief.start(5_000)
    again = Link(door.of("root"), client_id="same", settings=settings)
    await again.start(5_000)
    await again.aclose()
    await holder.aclose()


async def test_a_disabled_user_is_cut_off_and_does_not_return(door: Door) -> None:
    ann = await door.add("ann", "read cluster")
    async with AdminClient(door.of("root")) as root, AdminClient(ann, timeout_ms=30_000) as client:
        await client.status()
        await root.change_user("ann", disabled=True)
        with pytest.raises(LoginFailed, match="does not let 'ann' in"):
            await client.status()
        await root.change_user("ann", disabled=False)
        await client.status()


async def test_a_user_changes_its_own_password_and_no_other(door: Door) -> None:
    ann = await door.add("ann", "read cluster")
    async with AdminClient(ann) as client:
        await client.set_password("ann", SecretStr("another one"))
        with pytest.raises(NotPermitted):
            await client.set_password("root", SecretStr("mine now"))
    with pytest.raises(LoginFailed):
        async with AdminClient(ann):
            pass
    async with AdminClient(door.of("ann", "another one")) as client:
        await client.status()


async def test_those_that_administer_users_make_no_administrators(door: Door) -> None:
    clerk = await door.add("clerk", "administer cluster")
    async with AdminClient(clerk) as client:
        await client.add_user("bob", SecretStr(PASSWORD))
        for attempt in (
            client.add_user("eve", SecretStr(PASSWORD), admin=True),
            client.set_password("root", SecretStr("mine now")),
            client.change_user("root", disabled=True),
        ):
            with pytest.raises(NotPermitted, match="only an administrator"):
                await attempt


async def test_a_client_without_a_user_says_what_to_set(broker: Broker) -> None:
    with pytest.raises(LoginFailed, match="HEADRACE_USER and HEADRACE_PASSWORD_FILE"):
        async with AdminClient(broker.address):
            pass

    def read() -> None:
        with pytest.raises(LoginFailed, match="HEADRACE_USER"):
            BlockingReader(broker.address)

    await asyncio.to_thread(read)
    assert await is_answered(broker.address, timeout_ms=60_000)


async def test_failures_lock_a_name_for_their_address_and_stand_in_the_audit(door: Door) -> None:
    wrong = door.of("root", "wrong")
    with capture_logs() as logs:
        for number in range(FAILURES_MAX + 1):
            sentence = "wrong" if number < FAILURES_MAX else "too many logins as 'root'"
            with pytest.raises(LoginFailed, match=sentence):
                await asyncio.to_thread(BlockingReader, wrong)
    failed = [one for one in logs if one["event"] == "audit"]
    assert {(one["action"], one["outcome"]) for one in failed} == {("login", "failed")}
    assert {one["resource"] for one in failed} == {"user:root"}
    # Each reason once; the rest is counted.
    assert [one["detail"].partition(" as ")[0] for one in failed][1:] == ["too many logins"]
    assert PASSWORD not in str(logs)
    assert "'wrong'" not in str(logs)


async def test_a_flood_of_wrong_logins_costs_the_broker_little(broker: Broker) -> None:
    state = broker._state
    assert state is not None
    assert state.logins is not None
    from headrace_mq.protocol.access import SCRAM, Login

    begun = time.process_time()
    for number in range(1_000):
        host = f"h{number % 7}"
        try:
            first = state.logins.step(number, host, Login(SCRAM, f"n,,n=root,r=x{number}"))  # type: ignore[arg-type]  # a connection is only compared
            nonce = first.answer.message.partition(",")[0]
            state.logins.step(number, host, Login(SCRAM, f"c=biws,{nonce},p=AAAA"))  # type: ignore[arg-type]  # a connection is only compared
        except LoginFailed:
            continue
    # A thousand in a second would take less than this share of the loop.
    assert (time.process_time() - begun) / 1 < 0.5


async def test_frames_stay_small_until_the_login(broker: Broker) -> None:
    host, port = broker.address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(encode_frame(RequestCode.HELLO, 1, encode(Hello("c", 1, 1))))
    frames = FrameReader(1 << 20)
    while not list(frames.feed(await reader.read(1 << 16))):
        pass
    writer.write(encode_frame_head(RequestCode.PRODUCE, 2, 100_000))
    (answer,) = list(frames.feed(await reader.read(1 << 16)))
    assert answer.code == FrameTooLarge.code
    assert "65536" in decode(ErrorAnswer, answer.body).sentence
    writer.close()
    await writer.wait_closed()


async def test_a_client_that_does_not_log_in_is_cut_off() -> None:
    async with guarded(login_ms_max=50) as broker:
        host, port = broker.address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(encode_frame(RequestCode.HELLO, 1, encode(Hello("c", 1, 1))))
        async with asyncio.timeout(120):
            while await reader.read(1 << 16):
                pass
        writer.close()
        await writer.wait_closed()


async def test_a_broker_without_an_administrator_does_not_start() -> None:
    disk = memory_disk()
    store = StoreSettings(
        directory=DIRECTORY, segment_bytes=SEGMENT_BYTES, compact_segment_bytes=SEGMENT_BYTES
    )
    broker = Broker(BrokerSettings(store=store, port=0, login=True), disk=disk, files=disk.mount())
    with pytest.raises(MessageQueueError, match="headrace user add NAME --admin --data /broker"):
        await broker.start()


async def test_a_certificate_that_is_a_user_is_a_login(tmp_path: Path, authority: Any) -> None:
    certificate, key = authority.issue(tmp_path, "localhost", "127.0.0.1")
    ca = authority.write(tmp_path)
    tls = {"tls_certificate": certificate, "tls_key": key, "tls_client_ca": ca}
    async with guarded(**tls) as broker:
        folder = tmp_path / "passwords"
        folder.mkdir()
        address = f"tls://{broker.address}?ca={ca}&certificate={certificate}&key={key}"
        with pytest.raises(LoginFailed, match="asks for a login"):
            async with AdminClient(address):
                pass
        assert broker._state is not None
        assert broker._state.users is not None
        subject = ""
        root = Door(folder, broker).of("root").partition("?")[2]
        async with AdminClient(f"{address}&{root}") as admin:
            subject = next(iter(broker._state.peers)).principal
            assert subject
            await admin.add_user(subject, None)
            await admin.set_rule(subject, "read", "cluster", allows=True)
        async with AdminClient(address) as admin:
            await admin.status()
            with pytest.raises(NotPermitted, match="read topic"):
                await admin.topics()


async def test_users_and_rules_hold_across_a_restart(tmp_path: Path) -> None:
    disk = memory_disk()
    async with guarded(disk) as broker:
        ann = await Door(tmp_path, broker).add("ann", "read topic:*")
    async with guarded(disk) as broker:
        address = f"tcp://{broker.address}?{ann.partition('?')[2]}"
        async with AdminClient(address) as admin:
            await admin.topics()
            with pytest.raises(NotPermitted):
                await admin.delete_queues("none")


async def test_a_service_logs_in_with_its_key_wherever_a_password_file_stands(
    door: Door, tmp_path: Path
) -> None:
    file, private = tmp_path / "bank.key", Ed25519PrivateKey.generate()
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file.touch(mode=0o600)
    file.write_bytes(pem)
    async with AdminClient(door.of("root")) as root:
        await root.add_user("bank", None, key=public_key_of(file))
        for action, resource in (
            ("publish", "topic:t"),
            ("create", "topic:t"),
            ("read", "topic:t"),
        ):
            await root.set_rule("bank", action, resource, allows=True)
        bank = f"tcp://{door.broker.address}?user=bank&password_file={file}"
        async with Producer(bank, ProducerSettings(**QUICK)) as producer:
            await producer.send(Message(topic="t", body=b"x"))

        def read() -> int:
            with BlockingReader(bank) as reader:
                return sum(one.end for one in reader.ranges(["t"]))

        assert await asyncio.to_thread(read) == 1
        await root.set_key("bank", Ed25519PrivateKey.generate().public_key().public_bytes_raw())
        with pytest.raises(LoginFailed, match="does not let 'bank' in"):
            await AdminClient(bank).start()
        found = await root.audit(100, chosen=lambda one: one.is_about("bank"))
    told = [(one.action, one.outcome, one.detail.partition(" ")[2]) for one in found]
    assert ("set_user", "done", "key") in told
    assert ("login", "done", "a key") in told
    assert any(one[:2] == ("login", "failed") for one in told)
    assert base64.b64encode(private.private_bytes_raw()) not in b"".join(
        one.encode() for one in found
    )
