-- Keeps all others from reading and writing streams until the transaction ends.
-- Binds: none
LOCK TABLE event_streams IN ACCESS EXCLUSIVE MODE
