"""What all members of a group do alike, in words."""

from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.client.group.contract import TOLD_CHARACTERS_MAX, contract_of, retries_told
from headrace_mq.settings import ConsumerSettings, RetrySettings


def told(topics: object, **changed: object) -> dict[str, str]:
    values = {"settings": ConsumerSettings(), "strategy": None, **changed}
    return contract_of(topics, **values)  # type: ignore[arg-type]  # by name


def test_a_contract_has_all_that_must_be_alike() -> None:
    assert told({"orders": "price > 10", "bids": ""}) == {
        "the allocation": "average",
        "the handling": "per_key",
        "the retries": "in place",
        "the filter of topic orders": "price > 10",
        "the filter of topic bids": "",
    }


def test_each_of_them_tells_members_apart() -> None:
    def mine(queues: object, members: object) -> None: ...

    plain = told(["t"])
    for other in (
        told(["t"], settings=ConsumerSettings(allocation="sticky")),
        told(["t"], settings=ConsumerSettings(handling="parallel")),
        told(["t"], strategy=mine),
        told({"t": "x = 1"}),
    ):
        assert other.keys() == plain.keys()
        assert other != plain
    assert told({"t": ""}) == plain


def test_each_way_to_retry_has_its_own_words() -> None:
    ways = {
        retries_told(RetrySettings(retries_max=n, levels=levels))
        for n in (1, 2)
        for levels in (("1s",), ("1s", "5s"))
    }
    assert len(ways) == 4


def test_lines_and_spaces_of_a_condition_say_nothing() -> None:
    assert told({"t": "a = 1\n   AND b = 2"}) == told({"t": "a = 1 AND b = 2"})


@given(st.text(min_size=TOLD_CHARACTERS_MAX), st.text(min_size=1))
def test_long_conditions_differ_in_bounded_space(text: str, more: str) -> None:
    one, other = told({"t": text}), told({"t": text + more})
    assert all(len(how) <= TOLD_CHARACTERS_MAX + 12 for how in one.values())
    assert (one == other) == (" ".join(text.split()) == " ".join((text + more).split()))
