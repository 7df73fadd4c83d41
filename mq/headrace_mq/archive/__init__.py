"""
The archive: PostgreSQL behind the log, for messages that the log holds no longer.

    append ─▶ log ─▶ acknowledged          fetch below the log's first offset
               │                                      ▲
               └─ archiver ─▶ COPY ─▶ PostgreSQL ─▶ blocks of messages

Sits between: the broker, which starts it and asks it what the store cannot answer, and the store,
whose log it copies and whose segments may go once it has. Nothing waits for it but who reads it.
"""
