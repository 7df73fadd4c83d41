"""The smallest application there is: notes with a title. `headrace run samples.notes:app`."""

from headrace import Aggregate, AggregateId, App, Command, CommandContext, DomainEvent, applies


class CreateNote(Command):
    note_id: AggregateId
    title: str


class ChangeTitle(Command):
    note_id: AggregateId
    title: str


class NoteCreated(DomainEvent):
    title: str


class TitleChanged(DomainEvent):
    title: str


class Note(Aggregate):
    title: str

    def initial_state(self) -> None:
        self.title = ""

    def create(self, title: str) -> None:
        self.record(NoteCreated(title=title))

    def change_title(self, title: str) -> None:
        if title != self.title:
            self.record(TitleChanged(title=title))

    @applies
    def _created(self, event: NoteCreated) -> None:
        self.title = event.title

    @applies
    def _title_changed(self, event: TitleChanged) -> None:
        self.title = event.title


app = App("notes")
app.add(Note)


@app.handles
async def create_note(command: CreateNote, context: CommandContext) -> None:
    note = Note(command.note_id)
    note.create(command.title)
    context.add(note)


@app.handles
async def change_title(command: ChangeTitle, context: CommandContext) -> None:
    note = await context.get(Note, command.note_id)
    note.change_title(command.title)
