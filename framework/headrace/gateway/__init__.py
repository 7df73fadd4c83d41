"""
An application over HTTP: commands in, read models out, in the process that runs it.

    server    uvicorn in the application's event loop  gateway   the routes and what all requests share
    commands  POST /commands/…                         request   body, query and headers, checked
    queries   GET /projections/…                       pages     rows a page at a time
    readiness GET /ready                               problems  every answer that is not a success
    openapi   GET /openapi.json                        overview  GET /docs
    settings  every limit                              catalogue the commands by name and version
    connections  how many, and how long

Used by clients over HTTP; it calls the bus and the read models of a running application.

    from headrace.gateway.server import serving
"""

from importlib.util import find_spec

from headrace.errors import ExtraMissing

if not all(map(find_spec, ("starlette", "uvicorn"))):
    raise ExtraMissing("serving HTTP needs Starlette and uvicorn: pip install 'headrace[http]'")
