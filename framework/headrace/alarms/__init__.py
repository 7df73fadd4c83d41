"""
Alarms that reach people without Prometheus: the shipped rules, and what watches the figures of brokers and services.

    rules    the table that also becomes deploy/prometheus/alerts.yml
    promql   evaluates the expressions of these rules over figures of the last hours
    watcher  reads targets, keeps a board of alarms, and sends what is in the outbox of each receiver
    folder   what the watcher knows, and silences: files that outlast a restart

Used by `headrace alarms` and by the console. `headrace.watch` has what an application says of itself.
"""
