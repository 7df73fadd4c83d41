"""
The archive: PostgreSQL behind the log, for messages that the log no longer holds.

    append ─▶ log ─▶ acknowledged          fetch below the log's first offset
               │                                      ▲
               └─ archiver ─▶ COPY ─▶ PostgreSQL ─▶ blocks of messages

Used by the broker, which starts it and asks it what the store cannot answer. It copies the store's log;
segments may go once it has. Only readers of old messages wait for it.
"""
