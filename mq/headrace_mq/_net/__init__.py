"""
Asyncio around the wire: sockets in, frames out, and nothing about what the frames mean.

Sits between: `protocol`, whose frames it cuts and joins, and `broker` and `client`, which act on
them. `server` accepts connections. Must never know topics, groups or files.
"""
