"""The framework's settings: every default stands in one place and bad values are refused."""

import pytest
from pydantic import ValidationError

from headrace.settings import Settings


def test_the_defaults_run_everything_in_memory() -> None:
    settings = Settings()
    assert settings.broker is None
    assert settings.event_store == "memory://"


@pytest.mark.parametrize(
    "wrong",
    [
        {"command_queues": 0},
        {"event_queues": 1_025},
        {"commands_in_flight_max": 0},
        {"conflict_retries_max": -1},
        {"retry_ms_min": 0},
        {"no_such_setting": 1},
    ],
)
def test_a_value_out_of_range_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        Settings.model_validate(wrong)


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        Settings().broker = "x"  # type: ignore[misc]  # the mistake under test
