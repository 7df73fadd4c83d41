"""The console's limits are checked once."""

from pathlib import Path

import pytest

from headrace.console.settings import ConsoleSettings


def test_the_console_listens_to_this_machine_alone_by_default() -> None:
    listening = ConsoleSettings().listening
    assert (listening.host, listening.port, listening.insecure) == ("127.0.0.1", 9_879, False)


def test_a_certificate_goes_with_its_key() -> None:
    with pytest.raises(ValueError, match="certificate and key go together"):
        ConsoleSettings(certificate=Path("console.pem"))


def test_a_setting_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="Extra inputs"):
        ConsoleSettings.model_validate({"prot": 9})
