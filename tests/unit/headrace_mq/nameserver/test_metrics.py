"""What a name server tells Prometheus of itself."""

from headrace_mq.broker.metrics.table import BROKER_METRICS
from headrace_mq.metrics.table import PROCESS_METRICS
from headrace_mq.name_settings import NameServerSettings
from headrace_mq.nameserver.metrics import NAME_SERVER_METRICS, samples, text
from headrace_mq.nameserver.name_server import NameServer
from headrace_mq.protocol.names.routes import LEADER, REPLICA, Register


async def test_every_metric_of_the_table_has_a_value() -> None:
    server = NameServer(NameServerSettings(port=0, not_ready_ms=0))
    server._table.register("one", Register("c", "g1", "a:1", LEADER, 2, ["a:1"]), 0)  # type: ignore[arg-type]  # any owner
    server._table.register("two", Register("c", "g2", "b:1", REPLICA, 2, ["b:1"]), 0)  # type: ignore[arg-type]  # any owner
    server._clock.monotonic_ms = lambda: 0  # type: ignore[method-assign]  # nothing expires
    values = {(one.metric.name, one.labels): one.value for one in samples(server)}
    own = {one.name for one in NAME_SERVER_METRICS} - {one.name for one in PROCESS_METRICS}
    assert {name for name, _ in values} == own
    assert values["headrace_nameserver_brokers", ("leader",)] == 1
    assert values["headrace_nameserver_brokers", ("alone",)] == 0
    assert values["headrace_nameserver_groups_without_leader", ()] == 1
    assert b"headrace_nameserver_brokers{role=" in await text(server)


def test_no_metric_has_the_name_of_a_broker_s() -> None:
    ours = {one.name for one in NAME_SERVER_METRICS} - {one.name for one in PROCESS_METRICS}
    assert not ours & {one.name for one in BROKER_METRICS}
