"""Options are checked where they are written, with a sentence."""

import pytest

from headrace_mq.message import QueueRef
from headrace_mq.spark.options import Moment, SourceOptions

GOOD = {"broker": "127.0.0.1:9876", "topic": "orders"}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"topic": "orders"}, r"needs \.option\('broker', …\)"),
        (
            GOOD | {"broker": "localhost"},
            "option 'broker': a broker address looks like .* not 'localhost'",
        ),
        (GOOD | {"broker": "host:http"}, "option 'broker': a broker address looks like"),
        (GOOD | {"topic": "orders,bad topic"}, "topic 'bad topic': use letters"),
        (GOOD | {"startingOffset": "latest"}, "has no option 'startingOffset'; use broker"),
        (GOOD | {"startingOffsets": "newest"}, "startingOffsets: use"),
        (GOOD | {"splitRecords": "0"}, "splitRecords is a number of records, 1 or more, not '0'"),
        (GOOD | {"maxRecordsPerBatch": "many"}, "maxRecordsPerBatch is a number of records"),
        (GOOD | {"startingEpochs": '{"orders": {"0": 3}}'}, "together with startingOffsets"),
        (GOOD | {"startingOffsets": "latest", "startingEpochs": "latest"}, "startingEpochs: use"),
        (GOOD | {"startingOffsets": "latest", "startingEpochs": "{"}, "startingEpochs: use"),
        (GOOD | {"readFrom": "both"}, "option 'readFrom': read_from is leader or replica"),
        (GOOD | {"failOnDataLoss": "1"}, "failOnDataLoss is true or false, not '1'"),
        (GOOD | {"endingTimestamp": "2026-01-31"}, "endingTimestamp: use milliseconds"),
        (
            GOOD | {"startingTimestamp": "0", "startingOffsets": "latest"},
            "give startingOffsets or startingTimestamp, not both",
        ),
    ],
)
def test_a_wrong_option_is_refused(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        SourceOptions.parse(options)


def test_an_option_that_is_left_out_has_its_default() -> None:
    options = SourceOptions.parse(GOOD | {"topic": "b, a,b"})
    assert options.topics == ("a", "b")
    assert (options.starting, options.ending) == ("earliest", "latest")
    assert (options.split_records, options.records_per_batch) == (None, None)
    assert options.include_headers
    assert options.fail_on_data_loss
    assert options.push_filters


def test_messages_of_a_group_may_come_from_a_replica() -> None:
    group = {"broker": "a:1,b:2", "topic": "orders"}
    assert SourceOptions.parse(group).broker == "a:1,b:2"
    wished = SourceOptions.parse(group | {"readfrom": "Replica"})
    assert wished.broker == "tcp://a:1,b:2?read_from=replica"
    assert wished.for_batch() is wished.for_stream()
    with pytest.raises(ValueError, match=r"'readFrom' is for spark\.read"):
        wished.for_writing()


def test_names_are_taken_in_any_case_as_spark_hands_them_on() -> None:
    options = SourceOptions.parse(
        GOOD
        | {"startingtimestamp": "12", "ENDINGOFFSETS": '{"orders": {"1": 4}}'}
        | {"includeheaders": "False", "splitrecords": "7"}
    )
    assert options.starting == Moment(ms=12)
    assert options.ending == {QueueRef("orders", 1): 4}
    assert (options.include_headers, options.split_records) == (False, 7)


@pytest.mark.parametrize(
    ("extra", "use", "sentence"),
    [
        ({"maxRecordsPerBatch": "5"}, "for_batch", "for spark.readStream, not for .read"),
        ({"endingOffsets": "latest"}, "for_stream", "for spark.read, not for .readStream"),
        ({"endingTimestamp": "5"}, "for_stream", "for spark.read, not for .readStream"),
        ({"startingOffsets": "latest"}, "for_writing", "for spark.read, not for .write"),
        ({"topic": " "}, "for_batch", r"needs \.option\('topic', …\)"),
        ({"topic": ""}, "for_stream", r"needs \.option\('topic', …\)"),
        ({"topic": "a,b"}, "for_writing", "names several; write to one"),
    ],
)
def test_an_option_of_another_use_is_refused(
    extra: dict[str, str], use: str, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        getattr(SourceOptions.parse(GOOD | extra), use)()


def test_options_of_their_use_are_accepted() -> None:
    for use in ("for_batch", "for_stream", "for_writing"):
        options = SourceOptions.parse(GOOD)
        assert getattr(options, use)() is options
