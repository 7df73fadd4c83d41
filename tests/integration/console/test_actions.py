"""No verb of the console is without a line in the table of actions, which browsers go through."""

from tests.integration.console.actions import ACTIONS, ELSEWHERE, SHOWN
from tests.unit.headrace.console.verbs.test_catalogue import alarms, all_verbs


def test_each_verb_of_the_catalogue_is_tried_in_a_browser() -> None:
    verbs = {**all_verbs(), **alarms()}
    changes = {name for name, one in verbs.items() if one.changes}
    assert {one.verb for one in ACTIONS} | ELSEWHERE.keys() == changes
    assert SHOWN.keys() == verbs.keys() - changes
