"""
Who the clients of a broker are, and whether they may do what they ask for.

Used by the broker's handlers and dispatcher. Uses the rules of `access`, and a file of the broker.
"""
