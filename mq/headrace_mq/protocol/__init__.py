"""
The wire without sockets: frames, codes, bodies and the record batch.

Sits between: `message`, whose values it encodes, and `_net` and `store`, which move and keep the
bytes. Pure: no clock, no I/O. `WIRE.md` beside this file draws every frame to the byte.
"""
