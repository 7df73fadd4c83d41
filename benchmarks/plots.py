"""Plots of results: bars of systems, curves of growth. Needs matplotlib, of the extra `peers`."""

from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["bars", "curves"]

OURS = "headrace"


def bars(path: Path, title: str, unit: str, values: Mapping[str, float]) -> None:
    """A bar for each name, the first on top; ours stands out."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 0.5 + 0.4 * len(values)), layout="constrained")
    colours = ["tab:blue" if name.startswith(OURS) else "tab:gray" for name in values]
    drawn = axes.barh(list(values), list(values.values()), color=colours)
    axes.bar_label(
        drawn, fmt="{:,.4g}" if max(values.values(), default=0) < 1_000 else "{:,.0f}", padding=3
    )
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_title(title)
    axes.set_xlabel(unit)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def curves(
    path: Path, title: str, units: tuple[str, str], found: Mapping[str, Sequence[tuple[int, float]]]
) -> None:
    """A curve for each name, both axes logarithmic."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for name, points in found.items():
        ours = name.startswith(OURS)
        axes.plot(*zip(*points, strict=True), marker="o", label=name, linewidth=2.5 if ours else 1)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(units[0])
    axes.set_ylabel(units[1])
    axes.grid(alpha=0.3)
    axes.set_title(title)
    if len(found) > 1:
        axes.legend()
    figure.savefig(path, dpi=100)
    plt.close(figure)
