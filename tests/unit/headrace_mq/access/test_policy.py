"""The index of rules decides as a plain look through all rules does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.access.policy import ANSWERS_MAX, Policy
from headrace_mq.access.resources import Action, Ask, Pattern, ResourceKind
from headrace_mq.access.rules import ANY_ACTION, Rule
from headrace_mq.access.users import User, role_subject

NAMES = st.sampled_from(["", "a", "ab", "abc", "b", "ba"])
SUBJECTS = ["ann", "bob", "role:r", "role:s"]


@st.composite
def patterns(draw: st.DrawFn) -> Pattern:
    kind = draw(st.sampled_from(list(ResourceKind)))
    if kind is ResourceKind.CLUSTER:
        return Pattern(kind)
    name = draw(NAMES)
    return Pattern(kind, name, is_prefix=not name or draw(st.booleans()))


rules = st.builds(
    Rule,
    st.sampled_from(SUBJECTS),
    st.sampled_from([ANY_ACTION, *Action]),
    patterns(),
    st.booleans(),
)
users = st.builds(
    User,
    st.sampled_from(["ann", "bob"]),
    st.lists(st.sampled_from(["r", "s"]), unique=True).map(tuple),
    st.booleans(),
    st.booleans(),
)


@st.composite
def asks(draw: st.DrawFn) -> Ask:
    kind = draw(st.sampled_from(list(ResourceKind)))
    return Ask(
        draw(st.sampled_from(list(Action))),
        kind,
        "" if kind is ResourceKind.CLUSTER else draw(NAMES),
    )


def naive(user: User | None, found: list[Rule], ask: Ask) -> bool:
    """Decides by the words of the documentation, rule by rule."""
    if user is None or user.is_disabled:
        return False
    if user.is_admin:
        return True
    allowed = False
    for one in found:
        if one.subject not in {user.name, *(f"role:{role}" for role in user.roles)}:
            continue
        kind, name, is_prefix = one.pattern
        if kind != ask.kind:
            continue
        hit = ask.name.startswith(name) if is_prefix else ask.name == name
        if not hit and not (ask.name == "" and not one.allows):
            continue
        if one.action in ("*", ask.action) or (one.allows and ask.action == "read"):
            if not one.allows:
                return False
            allowed = True
    return allowed


@given(st.none() | users, st.lists(rules, max_size=12), asks())
def test_the_decision_is_that_of_the_plain_words(
    user: User | None, found: list[Rule], ask: Ask
) -> None:
    grants = Policy({} if user is None else {user.name: user}, found).grants(
        user.name if user else "eve"
    )
    decision = grants.explain(ask)
    assert decision.allowed == naive(user, found, ask) == grants.allows(ask) == grants.allows(ask)
    if decision.rule is not None:
        assert decision.rule in found
        assert decision.rule.allows == decision.allowed
        assert str(decision.rule) in decision.reason


def test_the_most_special_rule_is_named() -> None:
    wide, near = (
        Rule.parse("ann", "*", "topic:*", allows=True),
        Rule.parse("ann", "read", "topic:a", allows=True),
    )
    grants = Policy({"ann": User("ann")}, [wide, near]).grants("ann")
    assert grants.explain(Ask(Action.READ, ResourceKind.TOPIC, "a")).rule == near
    assert grants.explain(Ask(Action.READ, ResourceKind.TOPIC, "b")).rule == wide


@pytest.mark.parametrize(
    ("user", "reason"),
    [
        (User("ann", is_admin=True), "the user is an administrator"),
        (User("ann", is_admin=True, is_disabled=True), "the user is disabled"),
        (User("ann"), "no rule allows it"),
        (User("bob"), "there is no such user"),
    ],
)
def test_a_decision_without_a_rule_says_why(user: User, reason: str) -> None:
    explained = (
        Policy({user.name: user}, []).grants("ann").explain(Ask(Action.READ, ResourceKind.CLUSTER))
    )
    assert explained.rule is None
    assert explained.reason == reason


def test_answers_that_are_remembered_have_a_bound() -> None:
    rule = Rule.parse(role_subject("r"), "publish", "topic:t*", allows=True)
    grants = Policy({"ann": User("ann", ("r",))}, [rule]).grants("ann")
    for number in range(ANSWERS_MAX + 10):
        assert grants.allows(Ask(Action.PUBLISH, ResourceKind.TOPIC, f"t{number}"))
    assert len(grants._answers) <= ANSWERS_MAX
