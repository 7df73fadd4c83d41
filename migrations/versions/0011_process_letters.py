"""
Process managers park aggregates; what is parked keeps a traceback; a `Later` waits for years.

Revision 0011, after 0008.
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_PARKED = sa.text("parked_at IS NOT NULL")


def upgrade() -> None:
    with op.batch_alter_table("projection_letters") as letters:
        letters.alter_column(
            "name", existing_type=sa.String(40), type_=sa.String(127), existing_nullable=False
        )
        letters.add_column(sa.Column("version", sa.BigInteger))
        letters.add_column(sa.Column("traceback", sa.Text))
    op.add_column("process_instances", sa.Column("traceback", sa.Text))
    op.create_index(
        "ix_process_instances_parked",
        "process_instances",
        ["process", "parked_at"],
        sqlite_where=_PARKED,
        postgresql_where=_PARKED,
    )
    op.drop_index("ix_process_commands_unsent", "process_commands")
    op.create_index("ix_process_commands_unsent", "process_commands", ["process", "sent", "due"])


def downgrade() -> None:
    op.drop_index("ix_process_commands_unsent", "process_commands")
    op.create_index("ix_process_commands_unsent", "process_commands", ["process", "sent"])
    op.drop_index("ix_process_instances_parked", "process_instances")
    op.drop_column("process_instances", "traceback")
    # What the version before could neither show nor take up.
    op.execute("DELETE FROM projection_letters WHERE name LIKE 'process:%'")
    op.execute("DELETE FROM process_journal WHERE process LIKE 'process:%'")
    with op.batch_alter_table("projection_letters") as letters:
        letters.drop_column("traceback")
        letters.drop_column("version")
        letters.alter_column(
            "name", existing_type=sa.String(127), type_=sa.String(40), existing_nullable=False
        )
