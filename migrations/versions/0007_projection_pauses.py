"""
Projections that are paused.

Revision 0007, after 0006.
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("projections", sa.Column("paused_at", sa.DateTime(timezone=True)))


def downgrade() -> None:
    with op.batch_alter_table("projections") as table:
        table.drop_column("paused_at")
