import pytest

from headrace_mq.errors import InvalidArgument
from headrace_mq.protocol.bodies import decode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.limits import (
    NO_RATES,
    BacklogDescription,
    BacklogsAnswer,
    Quota,
    QuotasAnswer,
    Rates,
    SetBacklogLimit,
    SetQuota,
    SettingsAnswer,
)


async def quotas(client) -> list[Quota]:
    return decode(QuotasAnswer, await client.ask(RequestCode.DESCRIBE_QUOTAS)).quotas


async def test_quotas_are_listed_with_the_defaults_first_and_hold_across_restarts(
    start, connect
) -> None:
    broker = await start(client_fetch_bytes=7)
    client = await connect(broker)
    own = Quota("topic", "t", Rates(produce_bytes=5))
    answer = await client.ask(RequestCode.SET_QUOTA, SetQuota(own.kind, own.name, own.rates))
    default = Quota("client", "", Rates(fetch_bytes=7))
    assert decode(QuotasAnswer, answer) == QuotasAnswer([default, own], [])
    await broker.aclose()
    client = await connect(await start())
    assert await quotas(client) == [own]
    await client.ask(RequestCode.SET_QUOTA, SetQuota("topic", "t", NO_RATES, remove=True))
    assert await quotas(client) == []


@pytest.mark.parametrize(
    "wrong",
    [
        SetQuota("planet", "t", Rates(1)),
        SetQuota("topic", "no spaces", Rates(1)),
        SetQuota("client", "", Rates(1)),
        SetQuota("topic", "t", Rates(fetch_messages=-1)),
    ],
)
async def test_a_quota_that_means_nothing_is_refused(client, wrong) -> None:
    assert isinstance(await client.refusal(RequestCode.SET_QUOTA, wrong), InvalidArgument)
    assert await quotas(client) == []


@pytest.mark.parametrize(
    "wrong",
    [
        SetBacklogLimit("g", 10, "pray"),
        SetBacklogLimit("g", 0, "block"),
        SetBacklogLimit("", 10, "block"),
    ],
)
async def test_a_limit_of_a_backlog_that_means_nothing_is_refused(client, wrong) -> None:
    assert isinstance(await client.refusal(RequestCode.SET_BACKLOG_LIMIT, wrong), InvalidArgument)
    answer = decode(BacklogsAnswer, await client.ask(RequestCode.DESCRIBE_BACKLOGS))
    assert answer.limits == []


async def test_the_backlog_limit_of_a_group_holds_across_restarts(start, connect) -> None:
    broker = await start()
    client = await connect(broker)
    await client.ask(RequestCode.SET_BACKLOG_LIMIT, SetBacklogLimit("g", 10, "block"))
    await broker.aclose()
    client = await connect(await start())
    answer = decode(BacklogsAnswer, await client.ask(RequestCode.DESCRIBE_BACKLOGS))
    assert answer.limits == [BacklogDescription("g", 10, "block", 0, 0, alarm=False)]


async def test_a_broker_describes_its_settings(start, connect) -> None:
    client = await connect(await start(client_fetch_bytes=7))
    answer = decode(SettingsAnswer, await client.ask(RequestCode.DESCRIBE_SETTINGS))
    found = {one.name: (one.value, one.source) for one in answer.settings}
    assert found["client_fetch_bytes"] == ("7", "program")
    assert found["client_produce_bytes"] == ("0", "default")
