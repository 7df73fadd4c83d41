"""An address has one holder."""

import pytest
from pydantic import ValidationError

from headrace.testing.scenario import scenario
from samples.registration.addresses import (
    ClaimEmail,
    EmailAddress,
    EmailClaimed,
    EmailReleased,
    EmailTaken,
    Register,
    ReleaseEmail,
    UserRegistered,
    normalized,
)
from samples.registration.application import app

ADA = "ada@example.org"
REGISTERED = UserRegistered(user_id="u-1", name="Ada", claim=1)


def address():
    return scenario(EmailAddress, ADA, app=app)


@pytest.mark.parametrize(
    "written", [ADA, " Ada@Example.ORG", "ada@example.org\n", "\uff21da@example.org"]
)
def test_every_way_to_write_an_address_is_the_same_aggregate(written: str) -> None:
    assert normalized(written) == ADA
    assert Register(email=written, user_id="u", name="Ada").aggregate_id == ADA


@pytest.mark.parametrize("written", ["", "ada", "@example.org", "ada@", "a da@example.org"])
def test_what_is_no_address_is_refused_before_it_is_sent(written: str) -> None:
    with pytest.raises(ValidationError, match="looks like"):
        Register(email=written, user_id="u", name="Ada")


def test_who_comes_first_has_it() -> None:
    address().when(Register(email=ADA, user_id="u-1", name="Ada")).then(REGISTERED)
    taken = address().given(REGISTERED)
    taken.when(Register(email=ADA, user_id="u-2", name="Eve")).then_raises(EmailTaken)
    taken.when(ClaimEmail(email=ADA, user_id="u-2")).then_raises(EmailTaken)


def test_a_released_address_is_free() -> None:
    free = address().given(REGISTERED, EmailReleased())
    free.when(ClaimEmail(email=ADA, user_id="u-2")).then(EmailClaimed(user_id="u-2", claim=2))


def test_a_late_release_does_not_take_away_what_was_claimed_again() -> None:
    again = address().given(REGISTERED, EmailClaimed(user_id="u-1", claim=2))
    again.when(ReleaseEmail(email=ADA, claim=1)).then_nothing()
    again.when(ReleaseEmail(email=ADA, claim=2)).then(EmailReleased())
