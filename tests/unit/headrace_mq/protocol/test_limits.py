from headrace_mq.protocol.limits import NO_RATES, Rates


def test_no_rates_limit_nothing() -> None:
    assert Rates() == NO_RATES
    assert not any(getattr(NO_RATES, name) for name in NO_RATES.__struct_fields__)
