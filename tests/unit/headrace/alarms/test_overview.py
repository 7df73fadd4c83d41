"""What a person sees: rules, what fires, silences, and why figures may be old."""

from headrace.alarms.folder import AlarmFolder, ReceiverState, TargetState, WatcherState
from headrace.alarms.overview import overview
from headrace.alarms.rules.table import RULES


def test_a_folder_without_a_watcher_says_so(tmp_path) -> None:
    found = overview(AlarmFolder(tmp_path), 100)
    assert [one["alarm"] for one in found["rules"]] == list(RULES)
    assert "start headrace alarms watch" in found["trouble"]


def test_an_alarm_that_fires_has_its_page_and_its_silence(tmp_path, alarm) -> None:
    folder = AlarmFolder(tmp_path)
    folder.keep(WatcherState(looked_s=100, every_s=15, alarms=(alarm(instance="a"),)))
    made = folder.silence("HeadraceBrokerDown", for_s=60, why="x", by="ann", now_s=100)
    found = overview(folder, 110)
    (one,) = found["firing"]
    assert (one["silence"], one["runbook"]) == (made.id, "docs/alarms.md#headracebrokerdown")
    assert sum(rule["firing"] for rule in found["rules"]) == 1
    assert (found["trouble"], found["silences"][0]["why"]) == ("", "x")


def test_trouble_of_the_watcher_itself_is_said(tmp_path) -> None:
    folder = AlarmFolder(tmp_path)
    away = (TargetState("headrace-broker", "a:1", up=False, sentence="refused"),)
    folder.keep(WatcherState(looked_s=100, every_s=15, targets=away))
    assert overview(folder, 110)["trouble"] == "no figures come from a:1"
    assert "nothing has watched for 900 s" in overview(folder, 1_000)["trouble"]
    failing = {"duty": ReceiverState(failures=2, sentence="refused")}
    folder.keep(WatcherState(looked_s=100, every_s=15, receivers=failing))
    assert overview(folder, 110)["trouble"] == "messages are not taken by duty"
