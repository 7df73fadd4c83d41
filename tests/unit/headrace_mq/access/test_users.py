"""A user's name is printable, and cannot be taken for a role."""

import pytest

from headrace_mq.access.users import check_user_name, role_subject
from headrace_mq.errors import InvalidArgument


@pytest.mark.parametrize("name", ["ann", "CN=reports,O=Bank", "Änne Müller", "x" * 200])
def test_usual_names_pass(name: str) -> None:
    check_user_name(name)


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", "role:a", "a\u202eb", "\ud800"])
def test_names_that_deceive_are_refused(name: str) -> None:
    with pytest.raises(InvalidArgument):
        check_user_name(name)


def test_rules_call_a_role_by_a_name_that_no_user_has() -> None:
    with pytest.raises(InvalidArgument):
        check_user_name(role_subject("guests"))
