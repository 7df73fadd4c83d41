"""
Each generation of a projection says by which version of its definition it was built, and as of when.

Revision 0016, after 0015.
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "projection_generations",
        sa.Column("name", sa.String(40), nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("as_of", sa.Text),
        sa.PrimaryKeyConstraint("name", "generation"),
    )


def downgrade() -> None:
    op.drop_table("projection_generations")
