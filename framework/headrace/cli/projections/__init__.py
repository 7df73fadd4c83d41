"""
`headrace projection`: read models, their rebuilds and their state.

Used by operators of an application.
"""
