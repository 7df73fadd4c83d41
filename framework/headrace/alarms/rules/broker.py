"""Rules about a broker, its disk, its topics and groups, its clients; about a group of brokers; and about name servers.

Used by `headrace.alarms.rules.table`; `docs/alarms.md` says what to do about each. Pure.
"""

from typing import Final

from headrace.alarms.rules.rule import AlarmRule

__all__ = ["BROKER_RULES", "CLUSTER_RULES", "NAMESERVER_RULES"]

# Where a broker leads, what another one said while it led has ended.
_ONE_LEADS: Final = "sum by (cluster, group) (headrace_broker_leads) > 0"

BROKER_RULES: Final = (
    AlarmRule(
        "HeadraceBrokerDown", "critical", "1m",
        'up{job="headrace-broker"} == 0',
        "the broker at {{ $labels.instance }} does not answer",
    ),
    AlarmRule(
        "HeadraceBrokerRestarts", "warning", "1m",
        'changes(process_start_time_seconds{job="headrace-broker"}[1h]) > 3',
        "the broker at {{ $labels.instance }} started {{ $value }} times in an hour",
    ),
    AlarmRule(
        "HeadraceMessagesRefused", "critical", "1m",
        "headrace_broker_takes_messages == 0",
        "the broker at {{ $labels.instance }} refuses new messages",
    ),
    AlarmRule(
        "HeadraceStoreReadOnly", "critical", "0s",
        "headrace_broker_read_only == 1",
        "a disk of the broker at {{ $labels.instance }} failed",
    ),
    AlarmRule(
        "HeadraceDiskDaysLeft", "warning", "30m",
        "headrace_broker_disk_days_left < 3",
        "the disk of {{ $labels.instance }} is full in {{ $value | humanize }} days",
    ),
    AlarmRule(
        "HeadraceDiskNearlyFull", "critical", "10m",
        "headrace_broker_disk_room_bytes / headrace_broker_disk_size_bytes < 0.05",
        "the disk of {{ $labels.instance }} is nearly full",
    ),
    AlarmRule(
        "HeadraceFlushSlow", "warning", "10m",
        "histogram_quantile(0.99, sum by (instance, le) (rate(headrace_broker_flush_seconds_bucket[5m]))) > "
        "0.1",
        "one flush in a hundred takes {{ $value | humanizeDuration }} at {{ $labels.instance }}",
    ),
    AlarmRule(
        "HeadraceAppendSlow", "warning", "10m",
        "histogram_quantile(0.99, sum by (instance, le) (rate(headrace_broker_append_seconds_bucket[5m]))) > "
        "0.5",
        "one acknowledgement in a hundred takes {{ $value | humanizeDuration }} at {{ $labels.instance }}",
    ),
    AlarmRule(
        "HeadraceBacklogGrowing", "warning", "15m",
        "sum by (instance, group) (deriv(headrace_broker_group_backlog_messages[15m])) > 0 and sum by "
        "(instance, group) (headrace_broker_group_backlog_messages) > 10000",
        "the backlog of group {{ $labels.group }} grows",
    ),
    AlarmRule(
        "HeadraceOldestMessage", "warning", "5m",
        "headrace_broker_group_oldest_seconds > 900 unless on (instance, group) headrace_broker_group_paused "
        "== 1",
        "a message has waited {{ $value | humanizeDuration }} for group {{ $labels.group }}",
    ),
    AlarmRule(
        "HeadraceGroupWithoutMembers", "warning", "10m",
        "headrace_broker_group_members == 0 and on (instance, group) sum by (instance, group) "
        "(headrace_broker_group_backlog_messages) > 0",
        "nothing consumes for group {{ $labels.group }}",
    ),
    AlarmRule(
        "HeadraceGroupPaused", "info", "1d",
        "headrace_broker_group_paused == 1",
        "group {{ $labels.group }} has been paused for a day",
    ),
    AlarmRule(
        "HeadraceBacklogLimit", "warning", "1m",
        "headrace_broker_group_backlog_alarm == 1",
        "the backlog of group {{ $labels.group }} is near its limit",
    ),
    AlarmRule(
        "HeadraceDeadLetters", "warning", "0s",
        "increase(headrace_broker_dead_letters_total[1h]) > 0 or (headrace_broker_dead_letters_total > 0 "
        "unless headrace_broker_dead_letters_total offset 1h)",
        "messages became dead letters in {{ $labels.topic }}",
    ),
    AlarmRule(
        "HeadraceScheduleLate", "warning", "5m",
        "headrace_broker_scheduled_late_seconds > 60",
        "scheduled messages are {{ $value | humanizeDuration }} late at {{ $labels.instance }}",
    ),
    AlarmRule(
        "HeadraceTransactionsUndecided", "warning", "5m",
        "headrace_broker_transactions_oldest_seconds > 600",
        "a transaction is undecided for {{ $value | humanizeDuration }} at {{ $labels.instance }}",
    ),
    AlarmRule(
        "HeadraceLoginsRefused", "warning", "0s",
        "increase(headrace_broker_logins_refused_total[10m]) > 20",
        "{{ $value | humanize }} logins were refused at {{ $labels.instance }}",
    ),
    AlarmRule(
        "HeadraceRequestsForbidden", "warning", "0s",
        "increase(headrace_broker_requests_forbidden_total[10m]) > 20",
        "{{ $value | humanize }} requests were not permitted at {{ $labels.instance }}",
    ),
    AlarmRule(
        "HeadraceConnectionsRefused", "warning", "0s",
        "increase(headrace_broker_connections_refused_total[10m]) > 0",
        "connections were refused at {{ $labels.instance }}",
    ),
    AlarmRule(
        "HeadraceRequestsThrottled", "info", "15m",
        "rate(headrace_broker_requests_throttled_total[5m]) > 1",
        "clients of {{ $labels.instance }} are held up by quotas",
    ),
    AlarmRule(
        "HeadraceClockJumped", "warning", "0s",
        "headrace_broker_clock_alarm == 1",
        "the clock of {{ $labels.instance }} was set",
    ),
    AlarmRule(
        "HeadraceDamage", "critical", "0s",
        "headrace_broker_damaged_places_total > 0",
        "{{ $value }} damaged places in the log of {{ $labels.instance }}",
    ),
    AlarmRule(
        "HeadraceCertificateExpires", "warning", "1h",
        "headrace_broker_certificate_expires_seconds - time() < 14 * 86400",
        "the certificate of {{ $labels.instance }} expires in {{ $value | humanizeDuration }}",
    ),
    AlarmRule(
        "HeadraceArchiveBehind", "warning", "5m",
        "headrace_broker_archive_waiting_seconds > 600",
        "messages wait {{ $value | humanizeDuration }} for the archive of {{ $labels.instance }}",
    ),
    AlarmRule(
        "HeadraceArchiveFailed", "warning", "5m",
        "headrace_broker_archive_failed == 1",
        "the archive of {{ $labels.instance }} cannot be written",
    ),
    AlarmRule(
        "HeadraceCompactionFailed", "warning", "1h",
        "headrace_broker_compaction_failed == 1",
        "compaction fails at {{ $labels.instance }}",
    ),
    AlarmRule(
        "HeadraceOpenFiles", "warning", "10m",
        'process_open_fds{job=~"headrace-.*"} / process_max_fds{job=~"headrace-.*"} > 0.9',
        "{{ $labels.instance }} has nearly as many open files as it may",
    ),
    AlarmRule(
        "HeadraceMetricsSummed", "info", "1h",
        "headrace_broker_metrics_summed > 0",
        "{{ $value }} {{ $labels.kind }} of {{ $labels.instance }} have no metrics of their own",
    ),
)  # fmt: skip

CLUSTER_RULES: Final = (
    AlarmRule(
        "HeadraceNoLeader", "critical", "30s",
        "sum by (cluster, group) (headrace_broker_leads) == 0",
        "group {{ $labels.group }} has no leader",
        _ONE_LEADS,
    ),
    AlarmRule(
        "HeadraceTooFewInSync", "critical", "30s",
        "headrace_broker_in_sync < headrace_broker_min_in_sync and on (instance) headrace_broker_leads == 1",
        "group {{ $labels.group }} acknowledges nothing",
        _ONE_LEADS,
    ),
    AlarmRule(
        "HeadraceReplicaOutOfSync", "warning", "5m",
        "headrace_broker_replica_in_sync == 0",
        "replica {{ $labels.replica }} of group {{ $labels.group }} is not in sync",
        _ONE_LEADS,
    ),
    AlarmRule(
        "HeadraceReplicaLag", "warning", "1m",
        "headrace_broker_replica_lag_seconds > 2 and on (cluster, group, replica) "
        "headrace_broker_replica_in_sync == 1",
        "replica {{ $labels.replica }} of group {{ $labels.group }} is slow",
        _ONE_LEADS,
    ),
    AlarmRule(
        "HeadraceElections", "warning", "0s",
        "changes(headrace_broker_group_epoch[1h]) > 3",
        "group {{ $labels.group }} elected a leader {{ $value }} times in an hour",
    ),
    AlarmRule(
        "HeadraceRecordWentBack", "critical", "0s",
        "headrace_broker_record_went_back == 1",
        "the record of group {{ $labels.group }} is older, or of another group",
    ),
    AlarmRule(
        "HeadracePromotedWithLoss", "critical", "0s",
        "headrace_broker_unclean_epoch > 0",
        "group {{ $labels.group }} lost messages when a broker was promoted",
    ),
    AlarmRule(
        "HeadraceMessagesLost", "critical", "0s",
        "headrace_broker_lost_messages > 0",
        "{{ $labels.instance }} of group {{ $labels.group }} had to cut {{ $value }} messages that its new leader lacks",
    ),
    AlarmRule(
        "HeadraceFailoverMayLose", "warning", "1m",
        "headrace_broker_failover_loss_seconds > 1",
        "a failover of group {{ $labels.group }} may lose what was acknowledged in the last {{ $value | humanizeDuration }}",
        _ONE_LEADS,
    ),
    AlarmRule(
        "HeadraceRecordSilent", "warning", "0s",
        "headrace_broker_record_silent_seconds > 30",
        "{{ $labels.instance }} has not reached the record of group {{ $labels.group }} for {{ $value }} s",
    ),
    AlarmRule(
        "HeadraceDamageNotRepaired", "critical", "5m",
        "headrace_broker_unrepaired_places > 0",
        "no other broker of group {{ $labels.group }} can repair {{ $value }} damaged places of {{ $labels.instance }}",
    ),
)  # fmt: skip

NAMESERVER_RULES: Final = (
    AlarmRule(
        "HeadraceNameServerDown", "warning", "1m",
        'up{job="headrace-nameserver"} == 0',
        "the name server at {{ $labels.instance }} does not answer",
    ),
)  # fmt: skip
