"""Verbs about messages and dead letters."""

import pytest

from headrace.console.problems import Mistake
from headrace_mq import Message, Producer
from headrace_mq.client.retry_headers import ORIGIN_HEADER
from headrace_mq.errors import TopicNotFound

ORIGIN = '{"topic":"orders","queue_id":0,"offset":0,"born_at_ms":1,"attempt":3,"reason":"no tea","back_to":"orders"}'


@pytest.fixture
async def letters(admin) -> None:
    await admin.create_topic("orders", 1)
    await admin.create_topic("%DLQ%kitchen", 1)
    async with Producer(admin._link.address) as producer:
        for number in range(4):
            headers = {ORIGIN_HEADER: ORIGIN}
            await producer.send(
                Message(topic="%DLQ%kitchen", body=b"%d" % number, key="ann", headers=headers)
            )


async def test_a_message_is_shown_found_and_listed(run, letters) -> None:
    shown = await run("message show", id="%DLQ%kitchen:0:2")
    assert shown["message"]["body"] == "2"
    assert shown["message"]["sender"] is not None
    found = await run("message find", topic="%DLQ%kitchen", key="ann", limit=2)
    assert [one["body"] for one in found["messages"]] == ["0", "1"]
    last = await run("message tail", topic="%DLQ%kitchen", limit=1)
    assert [one["body"] for one in last["messages"]] == ["3"]
    assert (await run("message show", id="%DLQ%kitchen:0:99"))["message"] is None
    with pytest.raises(Mistake, match="no message id"):
        await run("message show", id="orders")


async def test_letters_tell_their_causes(run, letters) -> None:
    found = await run("message dead", group="kitchen", limit=3)
    assert found["causes"] == [{"cause": "no tea", "letters": 3}]
    first = found["letters"][0]
    assert (first["id"], first["attempts"], first["origin"]) == (0, 3, "orders:0:0")
    assert found["next"] == 3
    assert (await run("message dead", group="kitchen", **{"from": 3}))["next"] is None


async def test_letters_are_sent_again_and_go_off_the_list(run, ahead, letters) -> None:
    with pytest.raises(Mistake, match="by id, or all"):
        await ahead("message resend", group="kitchen")
    assert "1 dead letters" in (await ahead("message resend", group="kitchen", id="0")).sentences[0]
    (sent,) = await run("message resend", group="kitchen", id=[0])
    assert sent["sent_as"] == "orders:0:0"
    told = await ahead("message resend", group="kitchen", all=True, rate=2)
    assert told.sentences[:2] == (
        "3 dead letters of group kitchen are sent again.",
        "At 2 a second it takes about 2 s.",
    )
    assert len(await run("message resend", group="kitchen", all=True)) == 3
    assert (await ahead("message resend", group="kitchen", all=True)).hindered
    assert (
        "4 dead letters"
        in (await ahead("message purge", group="kitchen", resent=True)).sentences[0]
    )
    assert await run("message purge", group="kitchen", resent=True) == 4
    assert (await ahead("message purge", group="kitchen", resent=True)).hindered


async def test_a_long_body_is_cut_in_a_list(run, admin) -> None:
    await admin.create_topic("orders", 1)
    async with Producer(admin._link.address) as producer:
        await producer.send(Message(topic="orders", body=b"\xff" * 1_000))
    (row,) = (await run("message tail", topic="orders"))["messages"]
    assert (row["cut"], len(row["body"])) == (True, 300)


async def test_messages_are_listed_from_an_offset_or_a_time_on(run, letters) -> None:
    listed = await run("message list", topic="%DLQ%kitchen", offset=1, limit=2)
    assert [one["body"] for one in listed["messages"]] == ["1", "2"]
    listed = await run("message list", topic="%DLQ%kitchen", since="2000-01-01")
    assert [one["body"] for one in listed["messages"]] == ["0", "1", "2", "3"]
    with pytest.raises(Mistake, match="write offset, or since"):
        await run("message list", topic="%DLQ%kitchen")


async def test_a_letter_is_sent_again_with_another_body(run, ahead, letters) -> None:
    with pytest.raises(Mistake, match="for one letter"):
        await ahead("message resend", group="kitchen", id="0,1", body="x")
    told = await ahead("message resend", group="kitchen", id="1", body="two\r\nlines")
    assert "another body, of 10 bytes" in told.sentences[0]
    (sent,) = await run("message resend", group="kitchen", id="1", body="two\r\nlines")
    shown = (await run("message show", id=sent["sent_as"]))["message"]
    assert (shown["body"], shown["key"]) == ("two\r\nlines", "ann")
    # The letter itself stays, and counts as sent again.
    found = await run("message dead", group="kitchen")
    assert found["letters"][1]["message"]["body"] == "1"
    assert found["letters"][1]["resent_at_ms"] is not None


async def test_a_letter_whose_lines_ended_with_crlf_is_not_changed_without_a_word(
    ahead, admin
) -> None:
    await admin.create_topic("%DLQ%kitchen", 1)
    async with Producer(admin.address) as producer:
        letter = Message(
            topic="%DLQ%kitchen", body=b"two\r\nlines", headers={ORIGIN_HEADER: ORIGIN}
        )
        await producer.send(letter)
    (number,) = [one.id for one in await admin.dead_letters("kitchen")]
    for body, said in (("two\nlines!", True), ("two\r\nlines!", False)):
        told = await ahead("message resend", group="kitchen", id=str(number), body=body)
        assert ("end with CRLF" in told.sentences[2]) is said


async def test_an_empty_body_is_a_body(run, letters) -> None:
    (sent,) = await run("message resend", group="kitchen", id="1", body="")
    assert (await run("message show", id=sent["sent_as"]))["message"]["body"] == ""


async def test_a_message_is_sent_and_its_trace_begins_with_its_sender(run, ahead, admin) -> None:
    await admin.create_topic("orders", 1)
    told = await ahead("message send", topic="orders", body="tea", key="ann", tag="hot")
    assert told.sentences == (
        "A message of 3 bytes is stored in topic orders, and each of its groups gets it.",
    )
    sent = await run("message send", topic="orders", body="tea", key="ann", tag="hot")
    shown = (await run("message show", **sent))["message"]
    assert (shown["body"], shown["key"], shown["tag"]) == ("tea", "ann", "hot")
    traced = await run("message trace", **sent)
    assert [one["step"] for one in traced["steps"]] == ["produced", "stored"]
    assert "127.0.0.1" in traced["steps"][0]["detail"]
    with pytest.raises(TopicNotFound):
        await ahead("message send", topic="coffee", body="x")
    assert (await run("message trace", id="orders:0:99"))["steps"] == []


async def test_a_topic_is_searched_by_a_filter_a_page_at_a_time(run, admin) -> None:
    await admin.create_topic("orders", 2)
    async with Producer(admin.address) as producer:
        for number in range(8):
            body = b'{"amount": %d}' % number
            await producer.send(Message(topic="orders", body=body, key=f"k{number}", tag="hot"))
    fit = {"topic": "orders", "filter": "_tag = 'hot' AND body.amount >= 2"}
    found = await run("message search", **fit)
    assert sorted(one["body"] for one in found["messages"]) == [f'{{"amount": {n}}}' for n in range(2, 8)]  # fmt: skip
    assert (found["searched"], found["of"], found["next"]) == (8, 8, None)
    first = await run("message search", **fit, limit=4)
    assert first["searched"] < 8
    second = await run("message search", **fit, limit=4, after=first["next"])
    ids = [one["id"] for page in (first, second) for one in page["messages"]]
    assert ids == [one["id"] for one in found["messages"]]
    last = await run("message tail", topic="orders", filter="body.amount = 3")
    assert [one["key"] for one in last["messages"]] == ["k3"]
    assert (last["searched"], last["of"]) == (8, 8)
    with pytest.raises(ValueError, match=r"filter, column 14: expected"):
        await run("message search", topic="orders", filter="body.amount >")
