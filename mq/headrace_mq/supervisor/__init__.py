"""
The supervisor: a parent process that keeps a broker running where no init system does.

    supervision    pure: when to start, ask, abort, kill, and when to leave it
    child          the broker's process and its two streams
    crash_report   what is kept of an end that nobody wanted
    supervisor     joins them

Sits between: the command line and a broker in a process of its own, which it knows by its command
line, its exit status, its line of readiness and its answers on the wire, and in no other way.
"""
