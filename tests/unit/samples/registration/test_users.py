"""A user has one address at a time."""

from headrace.testing.scenario import scenario
from samples.registration.application import app
from samples.registration.users import (
    ChangeEmail,
    CloseUser,
    EmailChanged,
    User,
    UserClosed,
    UserCreated,
    UserIsClosed,
)

CREATED = UserCreated(name="Ada", email="ada@example.org", claim=1)


def test_a_change_tells_which_address_is_free_now() -> None:
    scenario(User, "u-1", app=app).given(CREATED).when(
        ChangeEmail(user_id="u-1", email="ada@example.net", claim=4)
    ).then(EmailChanged(email="ada@example.net", claim=4, old_email="ada@example.org", old_claim=1))


def test_a_closed_user_changes_no_more() -> None:
    closed = UserClosed(email="ada@example.org", claim=1)
    user = scenario(User, "u-1", app=app).given(CREATED)
    user.when(CloseUser(user_id="u-1")).then(closed)
    gone = scenario(User, "u-1", app=app).given(CREATED, closed)
    gone.when(CloseUser(user_id="u-1")).then_nothing()
    gone.when(ChangeEmail(user_id="u-1", email="x@y", claim=1)).then_raises(UserIsClosed)
