"""Rules about the processes of an application: commands, handlers, projections, HTTP.

Used by `headrace.alarms.rules.table`; `docs/alarms.md` says what to do about each. Pure.
"""

from typing import Final

from headrace.alarms.rules.rule import AlarmRule

__all__ = ["APPLICATION_RULES"]

APPLICATION_RULES: Final = (
    AlarmRule(
        "HeadraceApplicationDown", "critical", "1m",
        'up{job="headrace-run"} == 0',
        "the application process at {{ $labels.instance }} does not answer",
    ),
    AlarmRule(
        "HeadraceCommandsFailing", "warning", "0s",
        'increase(headrace_app_commands_total{outcome="failed"}[10m]) > 0',
        "commands fail at {{ $labels.instance }}",
    ),
    AlarmRule(
        "HeadraceConflicts", "warning", "10m",
        "sum by (instance) (rate(headrace_app_command_conflicts_total[10m])) / sum by (instance) "
        "(rate(headrace_app_commands_total[10m])) > 0.2",
        "commands of {{ $labels.instance }} often meet a conflict",
    ),
    AlarmRule(
        "HeadraceHandlerFailing", "warning", "5m",
        "increase(headrace_app_reader_failures_total[10m]) > 5",
        "{{ $labels.reader }} fails at {{ $labels.instance }}",
    ),
    AlarmRule(
        "HeadraceParked", "warning", "5m",
        "max by (processor) (headrace_app_parked) > 0",
        "{{ $value }} are parked: {{ $labels.processor }}",
    ),
    AlarmRule(
        "HeadraceParkedForLong", "warning", "5m",
        "max by (processor) (headrace_app_parked_oldest_seconds) > 86400",
        "something is parked since {{ $value | humanizeDuration }}: {{ $labels.processor }}",
    ),
    AlarmRule(
        "HeadraceProjectionBehind", "warning", "5m",
        "max by (projection) (headrace_app_projection_lag_seconds) > 60 unless max by (projection) "
        "(headrace_app_projection_paused) == 1",
        "projection {{ $labels.projection }} is {{ $value | humanizeDuration }} behind",
    ),
    AlarmRule(
        "HeadraceProjectionStuck", "critical", "5m",
        "max by (projection) (headrace_app_projection_lag_messages) > 0 and max by (projection) "
        "(delta(headrace_app_projection_position[15m])) == 0 unless max by (projection) "
        "(headrace_app_projection_paused) == 1",
        "projection {{ $labels.projection }} stands still",
    ),
    AlarmRule(
        "HeadraceReaderFailed", "critical", "1m",
        'headrace_app_reader_state{state="failed"} == 1',
        "{{ $labels.reader }} has failed at {{ $labels.instance }}",
    ),
    AlarmRule(
        "HeadraceAlarm", "warning", "5m",
        'headrace_app_alarm{kind!~"letters|oldest letter"} == 1',
        "{{ $labels.about }}: {{ $labels.kind }}",
    ),
    AlarmRule(
        "HeadraceLagUnknown", "warning", "5m",
        "headrace_app_lag_unknown == 1",
        "the lag of projections is unknown at {{ $labels.instance }}",
    ),
    AlarmRule(
        "HeadraceCommitSlow", "warning", "10m",
        "histogram_quantile(0.99, sum by (instance, le) (rate(headrace_app_commit_seconds_bucket[5m]))) > 0.5",
        "one commit in a hundred takes {{ $value | humanizeDuration }} at {{ $labels.instance }}",
    ),
    AlarmRule(
        "HeadraceHttpErrors", "warning", "5m",
        'sum by (instance) (rate(headrace_app_http_requests_total{status=~"5.."}[5m])) / sum by (instance) '
        "(rate(headrace_app_http_requests_total[5m])) > 0.05",
        "{{ $value | humanizePercentage }} of HTTP requests fail at {{ $labels.instance }}",
    ),
    AlarmRule(
        "HeadraceApplicationReadOnly", "critical", "1m",
        "headrace_app_read_only == 1",
        "the application at {{ $labels.instance }} is read-only",
    ),
    AlarmRule(
        "HeadraceHttpCertificateExpires", "warning", "1h",
        "headrace_app_certificate_expires_seconds - time() < 14 * 86400",
        "the HTTP certificate of {{ $labels.instance }} expires in {{ $value | humanizeDuration }}",
    ),
)  # fmt: skip
