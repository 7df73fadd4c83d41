"""
Asyncio around the wire: sockets in, frames out, and nothing about what the frames mean.

Used by `broker` and `client`, which act on frames; uses `protocol` to cut and join them. `server` accepts
connections. It never knows topics, groups or files.
"""
