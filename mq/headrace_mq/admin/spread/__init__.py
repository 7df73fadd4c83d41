"""
Topics whose queues are in several groups of brokers.

Used by the command line and by your programs.
"""
