"""
The bank behind a web framework of your choice: here FastAPI, with routes of its own.

`docs/web.md` shows the same for Starlette, Flask and Django. Used by you, and by a test.
"""
