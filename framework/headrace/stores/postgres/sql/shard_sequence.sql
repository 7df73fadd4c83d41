-- Lets the sequence of positions outlive the old table of streams.
-- Binds: none
ALTER SEQUENCE event_streams_position_seq OWNED BY event_streams_new.position
