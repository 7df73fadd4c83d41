"""
Processes know the last version of each aggregate, and find instances that ended long ago.

Revision 0008, after 0007.
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "process_versions",
        sa.Column("process", sa.String(127), nullable=False),
        sa.Column("aggregate_id", sa.String(255), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("process", "aggregate_id"),
    )
    op.create_index(
        "ix_process_instances_ended", "process_instances", ["process", "ended", "changed_at"]
    )


def downgrade() -> None:
    op.drop_index("ix_process_instances_ended", "process_instances")
    op.drop_table("process_versions")
