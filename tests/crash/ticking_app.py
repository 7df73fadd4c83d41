"""Applications with a command for every minute; `headrace run tests.crash.ticking_app:app` runs it."""

from datetime import datetime

from headrace import Aggregate, AggregateId, App, Command, CommandContext, DomainEvent, applies

CLOCKS = 5


class Tick(Command):
    clock_id: AggregateId
    moment: datetime


class Ticked(DomainEvent):
    moment: datetime


class Clock(Aggregate):
    ticks: int

    def initial_state(self) -> None:
        self.ticks = 0

    def tick(self, moment: datetime) -> None:
        self.record(Ticked(moment=moment))

    @applies
    def on_ticked(self, event: Ticked) -> None:
        self.ticks += 1


def make_app(*, periodic: bool) -> App:
    """Makes one that sends the commands itself, or only handles them."""
    app = App("ticking")
    app.add(Clock)

    @app.handles
    async def tick(command: Tick, context: CommandContext) -> None:
        clock = await context.get_or_add(Clock, command.clock_id, lambda: Clock(command.clock_id))
        clock.tick(command.moment)

    if periodic:

        @app.periodic("* * * * *", missed="all")
        def every_minute(moment: datetime) -> Command:
            return Tick(clock_id=f"clock-{moment.minute % CLOCKS}", moment=moment)

    return app


app = make_app(periodic=True)
