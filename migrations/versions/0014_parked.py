"""
One table for all that is parked: commands, and aggregates with an event that could not be handled.

Revision 0014, after 0013.
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "parked",
        sa.Column("number", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("name", sa.String(127), nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("aggregate_id", sa.String(255), nullable=False),
        sa.Column("command_id", sa.String(255), nullable=False),
        sa.Column("command", sa.Text, nullable=False),
        sa.Column("state", sa.String(7), nullable=False),
        sa.Column("parked_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("sentence", sa.Text, nullable=False),
        sa.Column("traceback", sa.Text, nullable=False),
        sa.Column("held", sa.BigInteger, nullable=False),
        sa.Column("version", sa.BigInteger),
        sa.Column("topic", sa.String(127)),
        sa.Column("queue_id", sa.Integer),
        sa.Column("message_offset", sa.BigInteger),
        sa.Column("message", sa.LargeBinary),
        sa.UniqueConstraint(
            "name", "generation", "aggregate_id", "command_id", name="uq_parked_place"
        ),
        sqlite_autoincrement=True,
    )
    # Commands keep their numbers, which an operator may have noted down.
    op.execute(
        "INSERT INTO parked (number, name, generation, aggregate_id, command_id, command, state,"
        " parked_at, attempts, error, sentence, traceback, held, message)"
        " SELECT number, 'commands:', 0, aggregate_id, command_id, name, state,"
        " parked_at, attempts, error, sentence, trace, 1, message FROM command_letters"
    )
    _carry_numbers("command_letters", "parked")
    op.execute(
        "INSERT INTO parked (name, generation, aggregate_id, command_id, command, state, parked_at,"
        " attempts, error, sentence, traceback, held, version, topic, queue_id, message_offset)"
        " SELECT name, generation, aggregate_id, '', '', 'parked', parked_at,"
        " retries + 1, '', error, COALESCE(traceback, ''), held, version, topic, queue_id,"
        " message_offset FROM projection_letters ORDER BY parked_at, name, aggregate_id"
    )
    op.drop_table("projection_letters")
    op.drop_table("command_letters")


def downgrade() -> None:
    op.create_table(
        "command_letters",
        sa.Column("number", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("aggregate_id", sa.String(255), nullable=False),
        sa.Column("command_id", sa.String(255), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("state", sa.String(7), nullable=False),
        sa.Column("parked_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("sentence", sa.Text, nullable=False),
        sa.Column("message", sa.LargeBinary, nullable=False),
        sa.Column("trace", sa.Text, nullable=False, server_default=""),
        sa.UniqueConstraint("aggregate_id", "command_id", name="uq_command_letters_command"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "projection_letters",
        sa.Column("name", sa.String(127), nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("aggregate_id", sa.String(255), nullable=False),
        sa.Column("topic", sa.String(127), nullable=False),
        sa.Column("queue_id", sa.Integer, nullable=False),
        sa.Column("message_offset", sa.BigInteger, nullable=False),
        sa.Column("parked_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("held", sa.BigInteger, nullable=False),
        sa.Column("retries", sa.Integer, nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("version", sa.BigInteger),
        sa.Column("traceback", sa.Text),
        sa.PrimaryKeyConstraint("name", "generation", "aggregate_id"),
    )
    op.execute(
        "INSERT INTO command_letters (number, aggregate_id, command_id, name, state, parked_at,"
        " attempts, error, sentence, message, trace)"
        " SELECT number, aggregate_id, command_id, command, state, parked_at,"
        " attempts, error, sentence, message, traceback FROM parked WHERE name = 'commands:'"
    )
    _carry_numbers("parked", "command_letters")
    op.execute(
        "INSERT INTO projection_letters (name, generation, aggregate_id, topic, queue_id,"
        " message_offset, parked_at, held, retries, error, version, traceback)"
        " SELECT name, generation, aggregate_id, topic, queue_id,"
        " message_offset, parked_at, held, attempts - 1, sentence, version, traceback"
        " FROM parked WHERE name <> 'commands:'"
    )
    op.drop_table("parked")


def _carry_numbers(old: str, new: str) -> None:
    """Lets the numbers of a table go on where those of another one are, also of rows long gone."""
    bind, tables = op.get_bind(), {"old": old, "new": new}
    if bind.dialect.name == "sqlite":
        bind.execute(sa.text("DELETE FROM sqlite_sequence WHERE name = :new"), {"new": new})
        bind.execute(
            sa.text(
                "INSERT INTO sqlite_sequence (name, seq)"
                " SELECT :new, seq FROM sqlite_sequence WHERE name = :old"
            ),
            tables,
        )
    else:
        last = bind.scalar(sa.select(sa.func.max(sa.column("number"))).select_from(sa.table(new)))
        bind.execute(
            sa.text(
                "SELECT setval(pg_get_serial_sequence(:new, 'number'),"
                " GREATEST(:next, nextval(pg_get_serial_sequence(:old, 'number'))), false)"
            ),
            tables | {"next": (last or 0) + 1},
        )
