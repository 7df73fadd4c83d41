"""
Parked instances of processes in the table of all that is parked, and no longer in their own rows.

Revision 0015, after 0014.
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_PARKED = sa.text("parked_at IS NOT NULL")


def upgrade() -> None:
    # One that has ended waits for nothing.
    op.execute(
        "INSERT INTO parked (name, generation, aggregate_id, command_id, command, state, parked_at,"
        " attempts, error, sentence, traceback, held)"
        " SELECT 'instances:' || process, 0, instance, '', '', 'parked',"
        " COALESCE(parked_at, changed_at), retries + 1, '', error, COALESCE(traceback, ''),"
        " (SELECT COUNT(*) FROM process_journal WHERE process_journal.process ="
        " process_instances.process AND process_journal.instance = process_instances.instance"
        " AND process_journal.outcome = 'waits')"
        " FROM process_instances WHERE error IS NOT NULL AND NOT ended"
        " ORDER BY parked_at, process, instance"
    )
    op.drop_index("ix_process_instances_parked", "process_instances")
    for column in ("error", "parked_at", "retries", "traceback"):
        op.drop_column("process_instances", column)


def downgrade() -> None:
    op.add_column("process_instances", sa.Column("error", sa.Text))
    op.add_column("process_instances", sa.Column("parked_at", sa.DateTime(timezone=True)))
    op.add_column(
        "process_instances", sa.Column("retries", sa.Integer, nullable=False, server_default="0")
    )
    op.add_column("process_instances", sa.Column("traceback", sa.Text))
    mine = (
        "FROM parked WHERE parked.name = 'instances:' || process_instances.process"
        " AND parked.generation = 0 AND parked.aggregate_id = process_instances.instance"
        " AND parked.command_id = ''"
    )
    op.execute(
        f"UPDATE process_instances SET error = (SELECT sentence {mine}),"  # noqa: S608 - no value from outside
        f" parked_at = (SELECT parked_at {mine}), traceback = (SELECT traceback {mine}),"
        f" retries = (SELECT attempts - 1 {mine}) WHERE EXISTS (SELECT 1 {mine})"
    )
    op.execute("DELETE FROM parked WHERE name LIKE 'instances:%'")
    op.create_index(
        "ix_process_instances_parked",
        "process_instances",
        ["process", "parked_at"],
        sqlite_where=_PARKED,
        postgresql_where=_PARKED,
    )
