"""
The archive: PostgreSQL behind the log, for messages that the log no longer holds.

    append ─▶ log ─▶ acknowledged          fetch below the log's first offset
               │                                      ▲
               └─ archiver ─▶ COPY ─▶ PostgreSQL ─▶ blocks of messages

Used by the broker, which starts it and sends it the reads that the log cannot answer. The archive copies
the store's log; a segment may be deleted once it is copied. Only readers of old messages wait for it.
"""
