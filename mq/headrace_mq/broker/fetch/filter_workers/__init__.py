"""
Backlogs of which little is wanted, sifted by processes of their own.

To look through what was stored takes all of a processor. In the broker's own process that would be
time that nobody else is served; so `ahead` has it done for readers that are far behind, by the
`sifters`, each of which runs `process` and is told by `jobs` what to read.

They pay by what others are spared: while a group looks for orders in a backlog, messages at 500 a
second arrive after 1.0 instead of 36 ms (median, two busy cores; docs/performance.md has the figures
of idle ones), and the group gets through 2.7 times as much.

Sits between: `scanning`, which asks, and the segments' files. Whatever a process cannot do, or does
not live to do, the broker does itself.
"""
