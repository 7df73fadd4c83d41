"""
Who sees the content of an application: events, states, and what errors say of them.

    read cluster                  what there is: aggregates, versions, times, names of events, what is parked
    consume topic:bank.events     what stands in it

An application's databases know no users, so the broker is asked. Used by the verbs about applications.
"""

from typing import Final

from headrace.errors import HeadraceError
from headrace.events.publisher import event_topic
from headrace_mq.access.heads import consumption
from headrace_mq.admin.client import AdminClient

__all__ = ["HIDDEN_WORDS", "content_need", "hidden_failure"]

# Before what is needed to see something.
HIDDEN_WORDS: Final = "hidden"


async def content_need(admin: AdminClient, app_name: str) -> str:
    """Returns what a user lacks to see the content of an application, in words; empty: it is shown.

    Args:
        admin: the user's own connection.
        app_name: of the application.
    """
    ask = consumption(event_topic(app_name))
    ruling = await admin.may(ask.action, ask.resource)
    return "" if ruling.allowed else f"needs {ask.action} on {ask.resource}"


def hidden_failure(need: str, status: int) -> HeadraceError:
    """Returns the error of a command whose own words may quote what the user may not see."""
    return HeadraceError(
        f"it ended with status {status}, and what it said is {HIDDEN_WORDS}: {need}; run it on the command line to read"
        " that"
    )
