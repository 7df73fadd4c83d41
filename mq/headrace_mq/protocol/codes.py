"""
Request codes; a number is never used again for something else.

Answers carry a `ResponseCode` of `headrace_mq.errors` instead.
"""

from enum import IntEnum

__all__ = ["RequestCode"]


class RequestCode(IntEnum):
    """What a frame asks for. Codes from 128 are pushed by the broker and are never answered."""

    HELLO = 1
    HEARTBEAT = 2
    LOGIN = 3
    PRODUCE = 10
    FETCH = 11
    COMMIT_OFFSETS = 20
    GET_OFFSETS = 21
    JOIN_GROUP = 30
    LEAVE_GROUP = 31
    REPLY = 40
    CREATE_TOPIC = 50
    DESCRIBE_TOPICS = 51
    QUEUE_RANGES = 52
    DESCRIBE_BROKER = 53
    DESCRIBE_QUEUES = 54
    FREEZE_QUEUES = 55
    DELETE_QUEUES = 56
    FIND_MESSAGES = 70
    OFFSETS_AT = 57
    RESET_OFFSETS = 58
    CLONE_OFFSETS = 59
    DELETE_GROUP = 60
    LOCK_QUEUES = 80
    UNLOCK_QUEUES = 81
    CANCEL_SCHEDULED = 90
    DESCRIBE_SCHEDULE = 91
    DESCRIBE_PRODUCERS = 96
    END_TRANSACTIONS = 100
    TAKE_CHECKS = 101
    DESCRIBE_TRANSACTIONS = 102
    SET_QUOTA = 110
    DESCRIBE_QUOTAS = 111
    SET_BACKLOG_LIMIT = 112
    DESCRIBE_BACKLOGS = 113
    LIST_GROUPS = 61
    DESCRIBE_GROUP = 62
    DESCRIBE_LAG = 63
    LIST_CONNECTIONS = 64
    BROKER_STATUS = 65
    SET_GROUP = 66
    RELEASE_MESSAGES = 67
    FOLLOW = 115
    HAND_OVER = 116
    NOTE_CHANGE = 117
    DESCRIBE_SETTINGS = 118
    SET_USER = 120
    SET_PASSWORD = 121
    LIST_USERS = 122
    SET_RULE = 123
    LIST_RULES = 124
    EXPLAIN_ACCESS = 125
    REGISTER = 126
    ROUTES = 127
    PUSHED_REPLY = 128
    PUSHED_GROUP_CHANGE = 129
