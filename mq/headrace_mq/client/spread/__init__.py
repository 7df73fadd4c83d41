"""
Several broker groups behind one address: which group has which queue, and one link to all of them.

Used by producers, consumers and administration.
"""
