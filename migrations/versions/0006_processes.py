"""
Instances of processes: where they stand, what they have seen, what they have sent.

Revision 0006, after 0004.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table("processes", sa.Column("name", sa.String(127), primary_key=True))
    op.create_table(
        "process_instances",
        sa.Column("process", sa.String(127), nullable=False),
        sa.Column("instance", sa.String(255), nullable=False),
        sa.Column("state", sa.Text),
        sa.Column("state_version", sa.Integer, nullable=False),
        sa.Column("undo", sa.Text, nullable=False),
        sa.Column("ended", sa.Boolean, nullable=False),
        sa.Column("began_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_event", sa.String(127), nullable=False),
        sa.Column("last_aggregate_id", sa.String(255), nullable=False),
        sa.Column("seen", sa.BigInteger, nullable=False),
        sa.Column("sent", sa.BigInteger, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("parked_at", sa.DateTime(timezone=True)),
        sa.Column("retries", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("process", "instance"),
    )
    op.create_table(
        "process_journal",
        sa.Column("process", sa.String(127), nullable=False),
        sa.Column("instance", sa.String(255), nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("aggregate_id", sa.String(255), nullable=False),
        sa.Column("command_id", sa.String(255), nullable=False),
        sa.Column("outcome", sa.String(8), nullable=False),
        sa.PrimaryKeyConstraint("process", "instance", "number"),
        sa.UniqueConstraint(
            "process", "instance", "aggregate_id", "command_id", name="uq_process_journal_cause"
        ),
    )
    op.create_table(
        "process_commands",
        sa.Column("process", sa.String(127), nullable=False),
        sa.Column("command_id", sa.String(36), nullable=False),
        sa.Column("instance", sa.String(255), nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("name", sa.String(127), nullable=False),
        sa.Column("aggregate_id", sa.String(255), nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("due", sa.DateTime(timezone=True)),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("sent", sa.Boolean, nullable=False),
        sa.Column("refused", sa.Text),
        sa.PrimaryKeyConstraint("process", "command_id"),
    )
    op.create_index(
        "ix_process_commands_instance", "process_commands", ["process", "instance", "number"]
    )
    op.create_index("ix_process_commands_unsent", "process_commands", ["process", "sent"])


def downgrade() -> None:
    for table in ("process_commands", "process_journal", "process_instances", "processes"):
        op.drop_table(table)
