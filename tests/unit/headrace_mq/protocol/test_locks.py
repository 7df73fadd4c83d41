from headrace_mq.protocol.bodies import CommittedOffset, decode, encode
from headrace_mq.protocol.locks import LocksAnswer, QueueLock


def test_a_grant_is_an_array_of_names_numbers_and_epochs() -> None:
    answer = LocksAnswer([QueueLock("t", 1, 300)], 10_000)
    assert encode(answer) == b"\x92\x91\x93\xa1t\x01\xcd\x01\x2c\xcd\x27\x10"
    assert decode(LocksAnswer, encode(answer)) == answer


def test_a_commit_of_a_client_that_knows_no_locks_has_the_epoch_zero() -> None:
    assert decode(CommittedOffset, b"\x93\xa1t\x01\x05") == CommittedOffset("t", 1, 5, 0)
