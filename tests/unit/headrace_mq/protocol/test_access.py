"""What stands in bodies of logins is not shown."""

from headrace_mq.protocol.access import Credentials, SetPassword, SetUser


def test_the_keys_of_a_password_stand_in_no_text() -> None:
    keys = Credentials(b"salt" * 4, b"k" * 32, b"v" * 32, 4_096)
    assert str(keys) == "Credentials(…)"
    assert "kkk" not in f"{SetUser('add', 'ann', [keys])} {SetPassword('ann', keys)}"
