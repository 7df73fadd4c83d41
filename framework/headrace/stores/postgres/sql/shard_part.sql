-- Makes one part of the new table of streams: those whose aggregate's hash leaves this remainder.
-- Places: {shards}, {shard}: numbers
-- Binds: none
CREATE TABLE event_streams_{shards}_{shard}
    PARTITION OF event_streams_new FOR VALUES WITH (MODULUS {shards}, REMAINDER {shard})
