"""
`headrace broker` and the commands that administer a broker.

Sits between: an operator and a broker.
"""
