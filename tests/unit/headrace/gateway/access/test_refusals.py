"""Why a client is not let in: the reason is for the log, and whether a token is missing for the answer."""

from headrace.gateway.access.refusals import KeysAway, TokenRefused


def test_a_refusal_has_a_reason_and_says_whether_there_was_a_token() -> None:
    assert str(TokenRefused("unknown token")) == "unknown token"
    assert not TokenRefused("unknown token").missing
    assert TokenRefused("no token", missing=True).missing


def test_keys_that_are_away_are_no_refusal_of_a_token() -> None:
    assert not isinstance(KeysAway(), TokenRefused)
