from headrace_mq.protocol import administration, bodies
from headrace_mq.protocol.bodies import Body


def test_every_body_is_exported_and_none_has_the_name_of_another_one() -> None:
    own = {
        name
        for name, value in vars(administration).items()
        if isinstance(value, type) and value.__module__ == administration.__name__
    }
    assert own == set(administration.__all__) - {"NO_TRAFFIC"}
    assert own & set(bodies.__all__) == set()
    assert all(issubclass(getattr(administration, name), Body) for name in own)
