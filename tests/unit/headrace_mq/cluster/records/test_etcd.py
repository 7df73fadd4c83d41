"""The record in a real etcd: what happens where it is cut off, killed or changed by hand."""

import asyncio
import json
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import trustme

from headrace_mq.cluster.member import ClusterMember, Turn
from headrace_mq.cluster.record import (
    ACK_IN_SYNC,
    ACK_LEADER,
    FEATURE_LEVEL,
    GroupRecord,
    Identity,
    LogPlace,
    OutcomeUnknown,
    Proposal,
    RecordUnavailable,
    Refused,
)
from headrace_mq.cluster.records.etcd import EtcdRecord
from headrace_mq.cluster.records.etcd_gateway import EtcdGateway
from tests.etcd_server import EtcdServer

A, B = Identity("a", "1"), Identity("b", "2")
TO_B = Proposal(1, 2, "b", frozenset({B}))
KEY = "headrace/c/g1"


def keeper(url: str, group: str = "g1", timeout_ms: int = 20_000) -> EtcdRecord:
    return EtcdRecord(url, cluster="c", group=group, timeout_ms=timeout_ms)


@pytest.fixture
async def record(etcd_url: str) -> EtcdRecord:
    made = keeper(etcd_url)
    await made.create(A, [A, B])
    return made


def text(value: str) -> str:
    return b64encode(value.encode()).decode()


def put(server: EtcdServer, value: str, key: str = KEY) -> None:
    """Writes a value by hand."""
    server.ask("/v3/kv/put", json.dumps({"key": text(key), "value": text(value)}).encode())


async def test_groups_of_one_etcd_do_not_know_each_other(
    record: EtcdRecord, etcd_url: str, shared_etcd: EtcdServer
) -> None:
    other = keeper(etcd_url, group="g1/ö")
    with pytest.raises(RecordUnavailable, match="no group 'g1/ö'"):
        await other.read()
    await other.create(B, [B])
    assert (await record.read()).leader == "a"
    found = json.loads(
        shared_etcd.ask("/v3/kv/range", b'{"key":"AA==","range_end":"AA==","keys_only":true}')
    )
    keys = [b64decode(each["key"]).decode() for each in found["kvs"]]
    assert keys == [f"{KEY}{rest}" for rest in ("", "#id", "%2F%C3%B6", "%2F%C3%B6#id")]
    await other.aclose()


async def test_brokers_that_start_at_once_make_the_record_once(etcd_url: str) -> None:
    members = [Identity(name, "1") for name in "abcdefgh"]
    made = [keeper(etcd_url).create(own, [own]) for own in members]
    assert len(set(await asyncio.gather(*made))) == 1


async def test_a_change_between_the_look_and_the_change_is_refused(
    record: EtcdRecord, etcd_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, other = EtcdGateway.ask, keeper(etcd_url)
    won: list[GroupRecord] = []

    async def late(self: EtcdGateway, path: str, *rest: Any) -> Any:
        if path.endswith("txn") and not won:
            with monkeypatch.context() as before:
                before.setattr(EtcdGateway, "ask", ask)
                won.append(await other.propose(TO_B))
        return await ask(self, path, *rest)

    monkeypatch.setattr(EtcdGateway, "ask", late)
    with pytest.raises(Refused) as refused:
        await record.propose(Proposal(1, 2, "a", frozenset({A})))
    assert [refused.value.record] == won
    assert await record.read() == won[0]


async def test_reports_of_brokers_have_an_age_by_the_clock_of_etcd(
    record: EtcdRecord, etcd_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = keeper(etcd_url, group="g10")
    logs = [LogPlace("forever", 1, 100)]
    assert await other.register(Identity("h:1", "x"), logs) == {"h:1"}
    assert await record.register(B, logs) == {"b"}
    assert await record.register(Identity("tls://h:1/ö", "x"), logs) == {"b", "tls://h:1/ö"}
    ask = EtcdGateway.ask

    async def later(self: EtcdGateway, *rest: Any) -> Any:
        answer = await ask(self, *rest)
        self.answered_at_ms += 60_000
        return answer

    monkeypatch.setattr(EtcdGateway, "ask", later)
    ages = {one.member.name: one.age_ms for one in await record.registered()}
    assert list(ages) == ["b", "tls://h:1/ö"]
    assert all(age >= 60_000 for age in ages.values())
    await record.forget("b")
    assert [one.member.name for one in await record.registered()] == ["tls://h:1/ö"]


class Cut:
    """Stands before an etcd, and cuts the connection of a change before or after etcd has it."""

    def __init__(self, server: EtcdServer) -> None:
        self._place = server.address.split(":")
        self.at = ""
        self.url = ""

    async def pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.partition(b"Content-Length: ")[2].split()[0])
        body = await reader.readexactly(size)
        at = self.at if b"request_put" in body else ""
        if at != "question":
            from_etcd, to_etcd = await asyncio.open_connection(*self._place)
            to_etcd.write(head + body)
            answer = await from_etcd.read()
            to_etcd.close()
            if at == "silence":
                await reader.read()
            elif at == "in the middle":
                writer.write(answer[:-9])
            elif at != "answer":
                writer.write(answer)
        writer.close()


@pytest.fixture
async def cut(shared_etcd: EtcdServer) -> AsyncIterator[Cut]:
    made = Cut(shared_etcd)
    server = await asyncio.start_server(made.pass_on, "127.0.0.1")
    made.url = f"etcd://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield made
    server.close()


@pytest.mark.parametrize(
    ("at", "version"), [("question", 1), ("answer", 2), ("in the middle", 2), ("silence", 2)]
)
async def test_a_change_that_is_cut_off_has_no_known_outcome(
    record: EtcdRecord, cut: Cut, at: str, version: int
) -> None:
    behind = keeper(cut.url, timeout_ms=500 if at == "silence" else 20_000)
    assert (await behind.read()).version == 1
    cut.at = at
    with pytest.raises(OutcomeUnknown, match="no other is elected"):
        await behind.propose(TO_B)
    assert (await record.read()).version == version
    cut.at = ""
    assert await behind.read() == await record.read()
    # Only another change ends the doubt.
    last = await behind.propose(Proposal(version, 3, "a", frozenset({A, B})))
    assert (last.version, last.epoch) == (version + 1, 3)


async def test_an_etcd_that_was_killed_keeps_everything(etcd: EtcdServer) -> None:
    record = keeper(etcd.url)
    await record.create(A, [A, B])
    changed = await record.propose(TO_B)
    etcd.kill()
    with pytest.raises(RecordUnavailable, match="does not answer"):
        await record.read()
    with pytest.raises(RecordUnavailable):
        await record.create(A, [A])
    with pytest.raises(OutcomeUnknown):
        await record.propose(Proposal(2, 3, "a", frozenset({A})))
    etcd.start()
    assert await record.read() == changed
    assert (await record.propose(Proposal(2, 3, "a", frozenset({A})))).version == 3


async def test_an_etcd_that_went_back_is_noticed_and_its_record_changes_nothing(
    record: EtcdRecord, shared_etcd: EtcdServer
) -> None:
    member = ClusterMember(B, {})
    member.on_record(await record.read())
    proposal = member.stand()
    assert proposal is not None
    assert member.on_record(await record.propose(proposal)) is Turn.LEAD
    put(shared_etcd, '{"version":1,"epoch":1,"leader":"a","in_sync":[["a","1"],["b","2"]]}')
    assert member.on_record(await record.read()) is Turn.WENT_BACK
    assert member.stand() is None
    with pytest.raises(Refused):
        await record.propose(Proposal(2, 2, "b", frozenset({B})))
    put(shared_etcd, '{"version":1')
    with pytest.raises(RecordUnavailable, match=f"{KEY} in etcd cannot be read"):
        await record.read()
    with pytest.raises(OutcomeUnknown, match="cannot be read"):
        await record.propose(TO_B)
    shared_etcd.empty()
    with pytest.raises(OutcomeUnknown, match="restore it"):
        await record.propose(TO_B)


async def test_a_group_of_an_earlier_version_gets_an_id_which_no_broker_of_that_version_takes_away(
    shared_etcd: EtcdServer, etcd_url: str
) -> None:
    earlier = '{"version":%d,"epoch":1,"leader":"a","in_sync":[["a","1"],["b","2"]]}'
    put(shared_etcd, earlier % 4)
    found = await asyncio.gather(*(keeper(etcd_url).read() for _ in range(4)))
    assert len(set(found)) == 1
    assert len(found[0].group_id) == 36
    put(shared_etcd, earlier % 5)
    again = await keeper(etcd_url).propose(Proposal(5, 2, "b", frozenset({B})), found[0].group_id)
    assert (again.version, again.group_id) == (6, found[0].group_id)


async def test_a_broker_of_an_earlier_version_changes_nothing_of_what_it_does_not_know(
    record: EtcdRecord, shared_etcd: EtcdServer
) -> None:
    await record.propose(Proposal(1, 1, "a", frozenset({A, B}), ack=ACK_LEADER))
    put(shared_etcd, '{"version":3,"epoch":1,"leader":"a","in_sync":[["a","1"]],"lossy":0}')
    found = await record.read()
    assert (found.version, found.in_sync, found.ack) == (3, frozenset({A}), ACK_LEADER)
    assert (await record.propose(Proposal(3, 2, "a", frozenset({A})))).ack == ACK_LEADER
    await record.register(A, [])
    assert [one.level for one in await record.registered()] == [FEATURE_LEVEL]
    put(shared_etcd, '{"member":["a","1"],"logs":[],"reported_at_ms":1}', f"{KEY}/a")
    assert [one.level for one in await record.registered()] == [0]


async def test_a_group_that_was_deleted_and_made_again_has_another_id(
    record: EtcdRecord, shared_etcd: EtcdServer, etcd_url: str
) -> None:
    first = await record.propose(Proposal(1, 1, "a", frozenset({A, B}), ack=ACK_LEADER))
    shared_etcd.ask("/v3/kv/deleterange", json.dumps({"key": text(KEY)}).encode())
    second = await keeper(etcd_url).create(A, [A])
    assert second.group_id not in {"", first.group_id}
    assert second == await keeper(etcd_url).read()
    assert second.ack == ACK_IN_SYNC
    with pytest.raises(Refused):
        await record.propose(Proposal(1, 2, "b", frozenset({B})), first.group_id)


def grant(server: EtcdServer) -> None:
    """Makes two users, the second for the keys of groups alone, and asks for logins from now on."""
    end = text("headrace0")
    for path, question in (
        ("user/add", {"name": "root", "password": "root"}),
        ("user/grant", {"user": "root", "role": "root"}),
        ("user/add", {"name": "ann", "password": "first"}),
        ("role/add", {"name": "groups"}),
        ("role/grant", {"name": "groups", "perm": {
            "permType": "READWRITE", "key": text("headrace/"), "range_end": end}}),
        ("user/grant", {"user": "ann", "role": "groups"}),
        ("user/changepw", {"name": "ann", "password": "second"}),
        ("enable", {}),
    ):  # fmt: skip
        server.ask(f"/v3/auth/{path}", json.dumps(question).encode())


async def test_a_user_of_etcd_that_may_use_the_keys_of_groups_is_enough(
    etcd: EtcdServer, tmp_path: Path
) -> None:
    await asyncio.to_thread(grant, etcd)
    with pytest.raises(RecordUnavailable, match="add user=NAME"):
        await keeper(etcd.url).read()
    file = tmp_path / "ann.txt"
    file.touch(0o600)
    file.write_text("second", encoding="utf-8")
    record = keeper(f"{etcd.url}?user=ann&password_file={file}")
    await record.create(A, [A, B])
    # etcd may forget the tokens that it gave before.
    etcd.kill()
    etcd.start()
    assert (await record.propose(TO_B)).leader == "b"
    file.write_text("wrong", encoding="utf-8")
    with pytest.raises(RecordUnavailable, match="check the user"):
        await keeper(f"{etcd.url}?user=ann&password_file={file}").read()


@pytest.fixture
def secured(etcd: EtcdServer, tmp_path: Path) -> Callable[[], tuple[str, str]]:
    """Starts etcd again with TLS that asks for certificates; returns addresses with one, and without."""

    def start() -> tuple[str, str]:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(tmp_path / "ca.pem")
        own = authority.issue_cert("127.0.0.1")
        own.cert_chain_pems[0].write_to_path(tmp_path / "own.pem")
        (tmp_path / "own.key").touch(0o600)
        own.private_key_pem.write_to_path(tmp_path / "own.key")
        etcd.kill()
        etcd.start(
            f"--cert-file={tmp_path}/own.pem", f"--key-file={tmp_path}/own.key",
            f"--trusted-ca-file={tmp_path}/ca.pem", "--client-cert-auth", scheme="https",
        )  # fmt: skip
        bare = f"etcds://{etcd.address}?ca={tmp_path}/ca.pem"
        return f"{bare}&certificate={tmp_path}/own.pem&key={tmp_path}/own.key", bare

    return start


async def test_a_record_behind_tls_asks_for_the_right_files(
    secured: Callable[[], tuple[str, str]], etcd: EtcdServer
) -> None:
    url, bare = secured()
    assert (await keeper(url).create(A, [A])).version == 1
    assert (await keeper(url).propose(TO_B)).version == 2
    with pytest.raises(RecordUnavailable):
        await keeper(bare).read()
    with pytest.raises(RecordUnavailable, match="name its authority with ca=FILE"):
        await keeper(f"etcds://{etcd.address}").read()
    with pytest.raises(RecordUnavailable, match="write etcds://"):
        await keeper(etcd.url).read()
