from headrace_mq.broker.quotas.quotas import FETCH, PRODUCE, Demand, Flow, Quotas, QuotaTarget, Room
from headrace_mq.protocol.limits import NO_RATES, Rates, Throttling

HOST, TOPIC = QuotaTarget("client", "10.0.0.7"), QuotaTarget("topic", "t")


def quotas(**defaults: Rates) -> Quotas:
    return Quotas(defaults, burst_ms=1_000)


def flow(found: Flow | None) -> Flow:
    assert found is not None
    return found


def test_clients_are_not_counted_without_a_quota() -> None:
    free = quotas(client=NO_RATES, topic=NO_RATES)
    assert not free.active
    assert free.flows([HOST, TOPIC], PRODUCE, 0) == []
    assert len(free) == 0


def test_a_default_counts_for_each_client_by_itself() -> None:
    given = quotas(client=Rates(produce_messages=10))
    assert given.active
    one = flow(given.flow(HOST, PRODUCE, 0))
    other = flow(given.flow(QuotaTarget("client", "10.0.0.8"), PRODUCE, 0))
    one.charge(0, 10, 0)
    assert (one.wait_ms(0, 1, 0), other.wait_ms(0, 1, 0)) == (100, 0)
    assert given.flow(HOST, FETCH, 0) is None
    assert given.flow(TOPIC, PRODUCE, 0) is None


def test_a_quota_of_its_own_takes_the_place_of_the_default_as_a_whole() -> None:
    given = quotas(topic=Rates(produce_bytes=10, fetch_bytes=10))
    given.replace({TOPIC: Rates(produce_bytes=1_000)})
    assert flow(given.flow(TOPIC, PRODUCE, 0)).wait_ms(0, 1, 1_000) == 0
    assert given.flow(TOPIC, FETCH, 0) is None
    given.replace({})
    assert given.rates(TOPIC) == Rates(produce_bytes=10, fetch_bytes=10)


def test_a_request_that_waited_for_a_changed_quota_is_let_through() -> None:
    given = quotas()
    given.replace({TOPIC: Rates(produce_bytes=1)})
    demand = Demand(flow(given.flow(TOPIC, PRODUCE, 0)), 1, 1)
    demand.flow.charge(0, 1, 100)
    assert demand.wait_ms(0) > 0
    given.replace({})
    assert demand.wait_ms(0) == 0
    assert not given.active


def test_the_slower_of_bytes_and_messages_decides() -> None:
    one = Flow(
        TOPIC, PRODUCE, Rates(produce_bytes=1_000, produce_messages=10), burst_ms=1_000, now_ms=0
    )
    one.charge(0, 10, 500)
    assert one.wait_ms(0, 1, 1) == 100
    one.charge(0, 0, 1_500)
    assert one.wait_ms(0, 1, 1) == 1_001
    assert one.room(500) == Room(5, 0)


def test_a_fetch_brings_what_there_is_room_for_and_one_batch_at_least() -> None:
    batches = [b"12345"] * 4
    assert Room(10, 12).take(list(batches), [2] * 4, one=True) == batches[:2]
    assert Room(3, 100).take(list(batches), [2] * 4, one=True) == batches[:1]
    assert Room(0, 0).take(list(batches), [2] * 4, one=True) == batches[:1]
    assert Room(0, 0).take(list(batches), [2] * 4, one=False) == []


def test_the_room_of_a_request_is_the_least_of_all_that_count() -> None:
    given = quotas(client=Rates(fetch_bytes=100), topic=Rates(fetch_messages=7))
    assert given.room([HOST, TOPIC], 0) == Room(7, 100)


def test_a_throttled_client_is_reported_for_ten_minutes_and_then_forgotten() -> None:
    given = quotas(topic=Rates(produce_messages=10))
    one = flow(given.flow(TOPIC, PRODUCE, 0))
    one.charge(0, 15, 0)
    one.waited(0, 40)
    one.waited(0, 60)
    assert given.throttled(0) == [Throttling("topic", "t", "produce", 2, 100, 500)]
    given.forget_idle(600_000)
    assert len(given) == 1
    given.forget_idle(600_001)
    assert len(given) == 0


def test_a_refusal_says_whose_quota_it_is_and_what_to_do() -> None:
    given = quotas(client=Rates(fetch_bytes=1))
    error = Demand(flow(given.flow(HOST, FETCH, 0))).refusal(5_000)
    assert "client '10.0.0.7' is over its quota to fetch" in str(error)
    assert "raise the quota" in str(error)
    assert error.retriable
