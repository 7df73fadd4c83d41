"""
Each generation of a projection says whether services of its version fold events into it.

Generations that are in use and were built before 0016 get the row that newer ones have.

Revision 0017, after 0016.
"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("followed", "by_command"):
        column = sa.Column(name, sa.Boolean, nullable=False, server_default=sa.false())
        op.add_column("projection_generations", column)
    # Of version 1: one that was built by another one has its row.
    op.execute(
        "INSERT INTO projection_generations (name, generation, version, followed, by_command)"
        " SELECT name, generation, 1, true, true FROM"
        " (SELECT name, generation FROM projections UNION"
        " SELECT name, previous_generation FROM projections WHERE previous_generation IS NOT NULL) u"
        " WHERE NOT EXISTS (SELECT 1 FROM projection_generations g"
        " WHERE g.name = u.name AND g.generation = u.generation)"
    )
    op.execute(
        "UPDATE projection_generations SET followed = true, by_command = true WHERE EXISTS"
        " (SELECT 1 FROM projections p WHERE p.name = projection_generations.name AND"
        " projection_generations.generation IN (p.generation, p.previous_generation))"
    )


def downgrade() -> None:
    with op.batch_alter_table("projection_generations") as table:
        for name in ("by_command", "followed"):
            table.drop_column(name)
