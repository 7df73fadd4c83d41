"""A user's session is left as it was: settings, properties, and how the user's own jobs are called."""

from typing import Any

import pytest
from pyspark.errors import PySparkException

from headrace.errors import ProjectionError
from headrace.spark import read_events
from headrace.spark.rebuild import rebuild
from headrace.spark.stream.continuous import follow
from headrace.stores.database.schema import upgrade
from headrace_mq.client.producer.producer import Producer
from headrace_mq.message import Message

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

APP = "ledger_app:app"


def properties(spark: Any) -> dict[str, str]:
    own = spark.sparkContext._jsc.sc().getLocalProperties()
    return {name: own.getProperty(name) for name in own.stringPropertyNames()}


def descriptions(spark: Any) -> list[str]:
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    told = [jobs.apply(place).description() for place in range(jobs.size())]
    return [each.get() for each in told if each.isDefined()]


async def test_settings_and_properties_are_those_of_before_and_jobs_are_named(
    spark: Any, broker: Any, ledger: Any, make_history: Any, make_stream: Any, publish: Any,
    sqlite_url: str,
) -> None:  # fmt: skip
    await publish(make_history(9, 3))
    await upgrade(sqlite_url)
    spark.sparkContext.setJobDescription("the user's own")
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", "users")
    before = (dict(spark.conf.getAll), properties(spark), spark.getTags())
    given = {"broker": broker.address, "read_models_url": sqlite_url, "spark": spark}
    told: list[str] = []
    try:
        report = await rebuild(
            APP, "accounts", verify=False, report=lambda phase, _: told.append(phase), **given
        )
        assert report.switched
        assert "headrace rebuild accounts: read and fold" in descriptions(spark)
        events = read_events(spark, APP, broker=broker.address)
        assert events.of(ledger.Booked).count() == 27
        await follow(APP, "partners", available_now=True, **given)
        assert (dict(spark.conf.getAll), properties(spark), spark.getTags()) == before

        # After what fails, too.
        await publish([make_stream("a0", 4, ledger.Noted(text="poison"))])
        with pytest.raises(ProjectionError, match="this note cannot be folded"):
            await rebuild(APP, "accounts", **given)
        body = ledger.app.serializer.encode_stream(make_stream("a0", 5, ledger.Ended()))
        unknown = body.replace(b'"Ended"', b'"Vanished"')
        async with Producer(broker.address) as producer:
            await producer.send(Message(topic="ledger.events", key="a0", body=unknown))
        with pytest.raises(PySparkException, match="Vanished"):
            read_events(spark, APP, broker=broker.address).of(ledger.Booked).count()
        assert (dict(spark.conf.getAll), properties(spark), spark.getTags()) == before
        assert "the user's own" in descriptions(spark)
    finally:
        spark.sparkContext.setLocalProperty("spark.job.description", None)
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", None)
