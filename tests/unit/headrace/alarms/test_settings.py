"""Settings of alarms are checked when they are read, and each mistake is a sentence."""

from typing import Any

import pytest
from pydantic import ValidationError

HOOK = {"name": "duty", "url": "https://hooks.example/x"}
MAIL = {
    "name": "team", "host": "mail.example", "sender": "a@b.example", "recipients": ["c@d.example"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"target": []}, "at least 1 item"),
        ({"target": [{"url": "file:///etc/passwd"}]}, "is no address"),
        ({"target": [{"url": "http://a:1/m"}, {"url": "http://a:1/n"}]}, "one host and port"),
        ({"target": [{"url": "http://a:1/m", "job": "x"}]}, "headrace-broker"),
        ({"webhook": [{"name": "duty"}]}, "either url or url_file"),
        ({"webhook": [HOOK | {"url_file": "x"}]}, "either url or url_file"),
        ({"webhook": [HOOK | {"url": "ftp://x"}]}, "is no address"),
        ({"webhook": [HOOK | {"url": "http://x.example", "token_file": "t"}]}, "needs https"),
        ({"webhook": [HOOK, HOOK]}, "two receivers have one name"),
        ({"webhook": [HOOK], "mail": [MAIL | {"name": "duty"}]}, "two receivers have one name"),
        ({"mail": [MAIL | {"user": "a"}]}, "user and password_file go together"),
        ({"mail": [MAIL | {"security": "none"}]}, "for a server on this machine"),
        ({"mail": [MAIL | {"recipients": ["a@b.example, c@d.example"]}]}, "no address of mail"),
        ({"mail": [MAIL | {"sender": "a@b.example\nBcc: x@y.example"}]}, "no address of mail"),
        ({"every_ms": 1}, "greater than or equal"),
        ({"evry_ms": 1_000}, "Extra inputs"),
    ],
)
def test_a_mistake_in_the_settings_is_a_sentence(
    settings: Any, values: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        settings(**values)


def test_a_target_is_called_by_its_host_and_port(settings: Any) -> None:
    (one,) = settings(target=[{"url": "http://a.example:9464/metrics"}]).target
    assert (one.job, one.instance) == ("headrace-broker", "a.example:9464")
    assert settings(webhook=[HOOK], mail=[MAIL]).mail[0].port == 587


@pytest.mark.parametrize(
    "url",
    [
        "http://ann:hunter2@a.example/metrics",
        "http://hunter2@a.example/metrics",
        "http://ann:hunter2/x@a.example",
        "http://[ann:hunter2@a.example/",
        "http:/ann:hunter2@a.example/",
    ],
)
def test_an_address_with_a_password_is_refused_without_showing_it(settings: Any, url: str) -> None:
    for values in ({"target": [{"url": url}]}, {"webhook": [HOOK | {"url": url}]}):
        with pytest.raises(ValidationError) as told:
            settings(**values)
        assert "hunter2" not in told.value.errors()[0]["msg"]
