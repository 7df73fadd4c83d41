"""
The supervisor: a parent process that keeps a broker running where no init system does.

    supervision    pure: when to start, ask, abort, kill, and when to leave it
    child          the broker's process and its two streams
    crash_report   the file that is kept about a crash
    supervisor     joins them

Used by the command line. The broker is a process of its own; the supervisor knows only its command
line, its exit status, its line of readiness and its answers on the wire.
"""
