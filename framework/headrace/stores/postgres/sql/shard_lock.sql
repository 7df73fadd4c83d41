-- Lets nobody write or read streams until the transaction ends.
-- Binds: none
LOCK TABLE event_streams IN ACCESS EXCLUSIVE MODE
