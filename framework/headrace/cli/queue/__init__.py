"""
`headrace broker` and the commands that administer a broker.

Used by operators of a broker.
"""
