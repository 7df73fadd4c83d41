import pytest

from headrace_mq.client_settings import (
    NAME_CHARACTERS_MAX,
    ConnectionSettings,
    ConsumerSettings,
    ProducerSettings,
)


@pytest.mark.parametrize("kind", [ConsumerSettings, ProducerSettings])
@pytest.mark.parametrize(
    "name", ["x" * (NAME_CHARACTERS_MAX + 1), "a b", "a/b", "%a", "é", "a\x1b[2J", "a\n"]
)
def test_a_name_that_no_terminal_should_show_is_refused(kind: type, name: str) -> None:
    assert issubclass(kind, ConnectionSettings)
    assert kind(name="shelf-1_b.EU").name == "shelf-1_b.EU"
    with pytest.raises(ValueError, match="name has at most 100 letters"):
        kind(name=name)


def test_times_are_checked_for_both_kinds_of_clients() -> None:
    for wrong in ({"reconnect_ms_min": 0}, {"vanished_ms_max": 1}, {"busy_poll_us": -1}):
        for kind in (ConsumerSettings, ProducerSettings):
            with pytest.raises(ValueError, match=next(iter(wrong)).rpartition("_")[0]):
                kind(**wrong)
    with pytest.raises(ValueError, match="away_ms must be 0 or more"):
        ConsumerSettings(away_ms=-1)
