"""
Letters of commands keep where the error came from.

Revision 0012, after 0008.
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("command_letters", sa.Column("trace", sa.Text, nullable=False, server_default=""))


def downgrade() -> None:
    op.drop_column("command_letters", "trace")
