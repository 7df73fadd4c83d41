"""The operations of projections say what conditions a query may have."""

from headrace.gateway.openapi.projections import many_rows, one_row
from headrace.gateway.settings import GatewaySettings
from samples.bank.read_models import balances

ROW = {"$ref": "#/components/schemas/Balance"}


def test_a_filter_takes_what_a_column_can_hold() -> None:
    described = many_rows(balances, ROW, GatewaySettings())["parameters"]
    parameters = {one["name"]: one for one in described if "name" in one}
    assert parameters["balance.ge"]["schema"]["maximum"] == 2**63 - 1
    assert parameters["owner"]["schema"]["maxLength"] == 8_192
    assert parameters["owner.in"]["schema"]["items"] == parameters["owner"]["schema"]
    assert parameters["owner.in"]["explode"] is False


def test_a_row_is_answered_as_json_or_as_events() -> None:
    answer = one_row(balances, ROW)["responses"]["200"]
    assert answer["content"].keys() == {"application/json", "text/event-stream"}
