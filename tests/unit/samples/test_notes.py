"""The smallest application works."""

from headrace.testing.scenario import scenario
from samples.notes import ChangeTitle, CreateNote, Note, NoteCreated, TitleChanged, app


async def test_a_note_is_created_and_changed() -> None:
    async with app.run_local() as notes:
        created = await notes.bus.execute(CreateNote(note_id="n-1", title="Milk"))
        changed = await notes.bus.execute(ChangeTitle(note_id="n-1", title="Milk and bread"))
        same = await notes.bus.execute(ChangeTitle(note_id="n-1", title="Milk and bread"))
        results = [(each.status, each.version) for each in (created, changed, same)]
        assert results == [("executed", 1), ("executed", 2), ("unchanged", 2)]


def test_a_title_changes_only_when_it_is_another() -> None:
    given = scenario(Note, "n-1", app=app).given(NoteCreated(title="Milk"))
    given.when(ChangeTitle(note_id="n-1", title="Milk")).then_nothing()
    given.when(ChangeTitle(note_id="n-1", title="Bread")).then(TitleChanged(title="Bread"))
