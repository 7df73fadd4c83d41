"""
The bank's events as tables: what each day moved, what cohorts of accounts hold, what is unusual.

    headrace events export --to parquet var/events --app samples.bank:app
    python -m samples.bank.analysis var/events var/plots

Reads exported events and nothing else: no broker, no database, not even the application. Each `# %%`
is a cell for editors that run files as notebooks.
"""

import argparse
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from headrace.spark import local_session
from samples.bank.plots import save_bars

# How each type of event changes the balance of its account.
SIGNS = {"Deposited": 1, "MoneyReceived": 1, "MoneyReturned": 1, "Withdrawn": -1, "MoneySent": -1}
# What is unusual: so many times the account's own usual movement, once it has had some.
UNUSUAL_TIMES, UNUSUAL_AFTER = 10, 5
# At most this many are listed.
UNUSUAL_MAX = 10


# %% Events to movements of money
def read_events(spark: SparkSession, folder: Path, event_type: str) -> DataFrame | None:
    """Returns the exported events of a type; None where there are none."""
    pattern = f"export-*/events/{event_type}"
    if not list(folder.glob(pattern)):
        return None
    return spark.read.option("mergeSchema", "true").parquet(str(folder / pattern))


def read_movements(spark: SparkSession, folder: Path) -> DataFrame:
    """Returns a row per event that moves money: account, version, day, kind, amount, balance."""
    found = []
    for kind, sign in SIGNS.items():
        events = read_events(spark, folder, kind)
        if events is not None:
            found.append(
                events.select(
                    F.col("context.aggregate_id").alias("account"),
                    F.col("context.version").alias("version"),
                    F.to_date("context.recorded_at").alias("day"),
                    F.lit(kind).alias("kind"),
                    (F.col("amount") * sign).alias("amount"),
                    "balance",
                )
            )
    if not found:
        raise SystemExit(f"{folder} holds no events that move money")
    return reduce(DataFrame.union, found)


# %% What each day moved
def daily_volumes(movements: DataFrame) -> DataFrame:
    """Returns per day what was paid in, paid out and transferred."""

    def total(kind: str) -> Column:
        return F.sum(F.when(F.col("kind") == kind, F.abs("amount")).otherwise(0))

    return (
        movements.groupBy("day")
        .agg(
            total("Deposited").alias("paid_in"),
            total("Withdrawn").alias("paid_out"),
            total("MoneyReceived").alias("transferred"),
        )
        .orderBy("day")
    )


# %% What accounts hold, by the day they were opened
def cohort_balances(opened: DataFrame, movements: DataFrame) -> DataFrame:
    """Returns, per cohort and day with a movement in it, what its accounts hold at the day's end."""
    cohorts = opened.select(
        F.col("context.aggregate_id").alias("account"),
        F.to_date("context.recorded_at").alias("cohort"),
    )
    # An account's last balance of a day, and how much it is more than that of its day before.
    ends = movements.groupBy("account", "day").agg(F.max_by("balance", "version").alias("balance"))
    before = F.lag("balance", 1, 0).over(Window.partitionBy("account").orderBy("day"))
    changes = ends.withColumn("change", F.col("balance") - before)
    so_far = Window.partitionBy("cohort").orderBy("day")
    return (
        changes.join(cohorts, "account")
        .groupBy("cohort", "day")
        .agg(F.sum("change").alias("change"))
        .select("cohort", "day", F.sum("change").over(so_far).alias("balance"))
        .orderBy("cohort", "day")
    )


# %% What is unusual
def unusual_movements(movements: DataFrame) -> DataFrame:
    """Returns movements of many times what the account's movements before were on average."""
    earlier = Window.partitionBy("account").orderBy("version").rowsBetween(-(1 << 31), -1)
    size = F.abs("amount")
    return (
        movements.withColumn("usual", F.avg(size).over(earlier))
        .withColumn("before", F.count("*").over(earlier))
        .where((F.col("before") >= UNUSUAL_AFTER) & (size > UNUSUAL_TIMES * F.col("usual")))
        .select("account", "version", "day", "kind", "amount", "usual")
        .orderBy(F.desc(size / F.col("usual")))
    )


# %% All of it, with plots
def analyse(spark: SparkSession, folder: Path, plots: Path) -> dict[str, list[Row]]:
    """Returns the rows of the three tables, and saves the first two as pictures."""
    movements = read_movements(spark, folder).cache()
    opened = read_events(spark, folder, "AccountOpened")
    tables = {
        "days": daily_volumes(movements).collect(),
        "cohorts": [] if opened is None else cohort_balances(opened, movements).collect(),
        "unusual": unusual_movements(movements).take(UNUSUAL_MAX),
    }
    movements.unpersist()
    plots.mkdir(parents=True, exist_ok=True)
    volumes = {str(row.day): (row.paid_in, row.paid_out, row.transferred) for row in tables["days"]}
    save_bars(plots / "daily-volumes.png", volumes)
    held = {str(row.cohort): (row.balance,) for row in tables["cohorts"]}
    save_bars(plots / "cohort-balances.png", held)
    return tables


def tell(tables: Mapping[str, Sequence[Row]]) -> None:
    """Prints the tables; of each cohort what it holds in the end."""
    for row in tables["days"]:
        print(
            f"{row.day}: {row.paid_in:,} in, {row.paid_out:,} out, {row.transferred:,} transferred"
        )
    for cohort, balance in {row.cohort: row.balance for row in tables["cohorts"]}.items():
        print(f"accounts opened on {cohort} hold {balance:,}")
    for row in tables["unusual"]:
        print(
            f"unusual: {row.kind} of {abs(row.amount):,} by {row.account}, usually {row.usual:,.0f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m samples.bank.analysis", description="the bank's events as tables"
    )
    parser.add_argument("folder", type=Path, help="what `headrace events export` wrote")
    parser.add_argument("plots", type=Path, help="where pictures are saved")
    asked = parser.parse_args()
    spark = local_session("bank-analysis")
    try:
        tell(analyse(spark, asked.folder, asked.plots))
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
