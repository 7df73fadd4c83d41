"""
The occurrences of a time table in cron's notation, in a time zone.

Used by periodic commands. Pure: moments come in, moments go out, all with the UTC zone.
"""

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from headrace.errors import DefinitionError

__all__ = ["CronSchedule"]


class CronSchedule:
    """When something is due.

    Args:
        expression: five fields: minute, hour, day of the month, month, day of the week.
        timezone: in which the fields are meant, such as "Europe/Berlin".

    Raises:
        DefinitionError: either is unusable, or there is no such day.
    """

    def __init__(self, expression: str, timezone: str = "UTC") -> None:
        self.expression = expression
        try:
            self._zone = ZoneInfo(timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise DefinitionError(
                f"there is no time zone {timezone!r} here; write one such as Europe/Berlin, and if the"
                " system has none, pip install tzdata"
            ) from error
        try:
            if len(expression.split()) != 5:  # with six, the first are seconds
                raise CronSimError("it has not five fields")  # noqa: TRY301 - one sentence for all
            next(CronSim(expression, datetime(2026, 1, 1, tzinfo=UTC)))
        except (CronSimError, StopIteration) as error:
            raise DefinitionError(
                f"the time table {expression!r} is unusable ({error}); write minute, hour, day of the"
                " month, month and day of the week, as in '*/5 * * * *'"
            ) from error

    def following(self, moment: datetime) -> datetime:
        """Returns the first occurrence after a moment."""
        return next(self._from(moment))

    def between(self, after: datetime, to: datetime, *, most: int) -> list[datetime]:
        """Returns the occurrences after a moment, up to and with another one, in order.

        Args:
            after: the first moment.
            to: the last moment.
            most: how many at most; the newest are returned.
        """
        # From a moment before the newest `most`, however long ago the first one is.
        start, found = to, deque[datetime](maxlen=most)
        for number, earlier in enumerate(CronSim(self.expression, self._local(to), reverse=True)):
            start = earlier.astimezone(UTC) - timedelta(seconds=1)
            if start < after or number > most:
                break
        for moment in self._from(max(start, after)):
            if moment > to:
                break
            found.append(moment)
        return list(found)

    def _from(self, moment: datetime) -> Iterator[datetime]:
        last = moment
        for local in CronSim(self.expression, self._local(moment)):
            found = local.astimezone(UTC)
            # In the hour that a clock has twice, a fixed time is found again.
            if found > last:
                last = found
                yield found

    def _local(self, moment: datetime) -> datetime:
        return moment.astimezone(self._zone)
