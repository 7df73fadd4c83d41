import pytest

from headrace_mq.budgets import BudgetSettings
from headrace_mq.settings import BrokerSettings


def test_a_broker_has_all_budgets() -> None:
    assert issubclass(BrokerSettings, BudgetSettings)


@pytest.mark.parametrize("name", BudgetSettings.__struct_fields__)
def test_a_budget_of_nothing_is_refused_where_nothing_could_be_done(name: str) -> None:
    least = 0 if name.startswith("address_") else 1
    assert getattr(BudgetSettings(**{name: least}), name) == least
    with pytest.raises(ValueError, match=f"{name} must be at least {least}"):
        BudgetSettings(**{name: least - 1})
