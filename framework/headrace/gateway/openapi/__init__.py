"""
The OpenAPI document of an application.

Used by the gateway; works with pydantic's schemas.
"""
