"""
The web console of a broker: what `headrace topic`, `group`, `message` and `audit` do, as pages and as JSON.

    server     uvicorn on a socket              console   the routes, and what all requests share
    sessions   who has signed in                safety    cookies, tokens against forged forms, headers
    verbs      what can be asked and done       pages     HTML of it, with a question before each change
    api        JSON of it                       live      figures as they change
    settings   every limit                      problems  errors as a status and a sentence

Used by `headrace console`. It asks the broker as the user who has signed in, so the broker decides what each may do.
"""

from importlib.util import find_spec

from headrace.errors import ExtraMissing

if not all(map(find_spec, ("jinja2", "starlette", "uvicorn"))):
    raise ExtraMissing(
        "the console needs Jinja2, Starlette and uvicorn: pip install 'headrace[console]'"
    )
