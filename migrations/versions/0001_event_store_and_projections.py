"""
The event store, and what projections keep beside their rows.

Revision 0001, the first.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "event_streams",
        sa.Column(
            "position",
            sa.BigInteger().with_variant(sa.Integer, "sqlite"),
            primary_key=True,
            autoincrement=True,
        ),
        sa.Column("aggregate_id", sa.String(255), nullable=False),
        sa.Column("aggregate_type", sa.String(127), nullable=False),
        sa.Column("version", sa.BigInteger),
        sa.Column("command_id", sa.String(255), nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.UniqueConstraint("aggregate_id", "version", name="uq_event_streams_version"),
        sa.UniqueConstraint("aggregate_id", "command_id", name="uq_event_streams_command"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "projections",
        sa.Column("name", sa.String(40), primary_key=True),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("previous_generation", sa.Integer),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("rebuild_generation", sa.Integer),
        sa.Column("rebuild_owner", sa.String(64)),
        sa.Column("rebuild_started_at", sa.DateTime(timezone=True)),
    )
    op.create_table(
        "projection_offsets",
        sa.Column("name", sa.String(40), nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("topic", sa.String(127), nullable=False),
        sa.Column("queue_id", sa.Integer, nullable=False),
        sa.Column("next_offset", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("name", "generation", "topic", "queue_id"),
    )
    op.create_table(
        "projection_versions",
        sa.Column("name", sa.String(40), nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("aggregate_id", sa.String(255), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("name", "generation", "aggregate_id"),
    )


def downgrade() -> None:
    op.drop_table("projection_versions")
    op.drop_table("projection_offsets")
    op.drop_table("projections")
    op.drop_table("event_streams")
