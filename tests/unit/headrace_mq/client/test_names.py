from uuid import UUID

from headrace_mq.client.names import client_id_of, member_of
from headrace_mq.settings import ConsumerSettings


def test_a_client_id_begins_with_the_name_and_is_never_the_same() -> None:
    ids = {client_id_of("shelf-1") for _ in range(3)}
    assert len(ids) == 3
    for one in ids:
        name, _, rest = one.partition("/")
        assert (name, str(UUID(rest))) == ("shelf-1", rest)
    unnamed = client_id_of("")
    assert str(UUID(unnamed)) == unnamed


def test_a_member_is_called_by_its_name_where_it_has_one() -> None:
    assert member_of(ConsumerSettings(name="shelf-1"), "shelf-1/x") == "shelf-1"
    assert member_of(ConsumerSettings(), "x") == "x"
