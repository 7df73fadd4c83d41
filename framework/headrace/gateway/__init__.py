"""
An application over HTTP: commands in, read models out, in the process that runs it.

    server    uvicorn within our own event loop        gateway   the routes and what all requests share
    commands  POST /commands/…                         reading   what a request says, checked
    queries   GET /projections/…                       pages     rows a page at a time
    readiness GET /ready                               problems  every answer that is not a success
    openapi   GET /openapi.json                        overview  GET /docs
    settings  every limit                              catalogue the commands by name and version

Used by clients that speak HTTP; uses a running application's bus and read models. It must not know
a handler, a fold or the queue.

    from headrace.gateway.server import serving
"""

from importlib.util import find_spec

from headrace.errors import ExtraMissing

if not all(map(find_spec, ("starlette", "uvicorn"))):
    raise ExtraMissing("serving HTTP needs Starlette and uvicorn: pip install 'headrace[http]'")
