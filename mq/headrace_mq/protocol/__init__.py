"""
The wire without sockets: frames, codes, bodies and the record batch.

Used by `_net` and `store`, which move and keep the bytes, and by clients and broker; encodes the values
of `message`. Pure: no clock, no I/O. `WIRE.md` in this directory draws every frame to the byte.
"""
