"""The regression's two figures. Needs matplotlib, so it is imported only to draw."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from optima.experiments.regression_run import FIT_EVERY, dataset_of
from optima.files import write_whole

# Okabe and Ito's colours, which the colour-blind can tell apart
FITS = {
    "none": ("none", "#D55E00"),
    "fixed": ("fixed σ = 0.1", "#009E73"),
    "naive-average": ("naive K = 5", "#CC79A7"),
    "learned-batch-1": ("learned, MSE + KL", "#0072B2"),
}
LEARNED = {
    "learned-batch-1": ("MSE + KL", "#0072B2"),
    "learned-batch-10": ("MSE + KL/10", "#56B4E9"),
    "learned-batch-50": ("MSE + KL/50", "#E69F00"),
    "learned-true-noise": ("true noise", "#000000"),
    "learned-noise": ("noise learned too", "#999999"),
}
FIXED_STD = 0.1


def draw(summary: dict[str, Any], folder: Path) -> list[Path]:
    """Write regression.png (the paper's figure) and regression-balance.png; returns their paths."""
    figures = {"regression.png": paper_figure(summary), "regression-balance.png": balance_figure(summary)}
    for name, figure in figures.items():
        image = BytesIO()
        figure.savefig(image, format="png", dpi=150)
        write_whole(folder / name, image.getvalue())
    return [folder / name for name in figures]


def paper_figure(summary: dict[str, Any]) -> Figure:
    """Fits against the truth on the left; traces of σ, μ and the ELBO on the right."""
    figure = Figure(figsize=(12, 6), layout="constrained")
    grid = figure.add_gridspec(3, 2, width_ratios=(1.25, 1))
    _draw_fits(figure.add_subplot(grid[:, 0]), summary)
    panels = [figure.add_subplot(grid[row, 1]) for row in range(3)]
    for axes, quantity, label in zip(panels, ("std", "mean", "elbo"), ("σ", "μ", "ELBO (nats)"), strict=True):
        _draw_traces(axes, summary["curves"]["trace"], quantity, label)
    _finish_traces(panels)
    return figure


def balance_figure(summary: dict[str, Any]) -> Figure:
    """Measured σ against the balance point, one dot per run."""
    figure = Figure(figsize=(10, 4.6), layout="constrained")
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    titles = ("C = mean squared slope of the truth", "C = curvature of the fitted network")
    for axes, pull, title in zip(panels, ("true_slope", "curvature"), titles, strict=True):
        _draw_balance(axes, summary["methods"], f"balance.{pull}", title)
    panels[0].set_ylabel("σ where it settled")
    panels[0].legend(frameon=False, loc="lower right")
    return figure


def _draw_fits(axes: Axes, summary: dict[str, Any]) -> None:
    curves = summary["curves"]
    data = dataset_of(curves["fit_seed"])
    x, f = (column[::FIT_EVERY].flatten().numpy() for column in (data.x_test, data.f_test))
    axes.plot(x, f, "k--", linewidth=1.8, label="truth", zorder=3)
    axes.plot(
        data.x.flatten().numpy(), data.y.flatten().numpy(), "o", color="0.55", markersize=4.5, label="training data"
    )
    for name, (label, colour) in FITS.items():
        axes.plot(x, curves["fit"][name], color=colour, linewidth=1.8, label=label)
    axes.set(xlabel="x", ylabel="y", title=f"fits to seed {curves['fit_seed']}")
    axes.legend(frameon=False, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.1))


def _draw_traces(axes: Axes, traces: dict[str, Any], quantity: str, label: str) -> None:
    for name, (method, colour) in LEARNED.items():
        epochs = traces[name]["epoch"]
        mean, deviation = (np.array(traces[name][quantity][part]) for part in ("mean", "deviation"))
        axes.plot(epochs, mean, color=colour, linewidth=1.6, label=method)
        axes.fill_between(epochs, mean - deviation, mean + deviation, color=colour, alpha=0.18, linewidth=0)
    axes.set_ylabel(label)


def _finish_traces(panels: list[Axes]) -> None:
    """What differs between the three panels, and the legend they share."""
    std, mean, elbo = panels
    std.axhline(FIXED_STD, color="#009E73", linestyle="--", linewidth=1.4, label="fixed σ = 0.1")
    std.set(yscale="log", yticks=(0.01, 0.02, 0.05, 0.1, 0.2), title="learned: mean ± sd over seeds")
    std.yaxis.set_major_formatter("{x:g}")
    std.minorticks_off()
    mean.axhline(0, color="0.7", linewidth=0.8)
    elbo.set(xlabel="epoch", ylim=(-90, 30))
    for axes in panels[:-1]:
        axes.tick_params(labelbottom=False)
    handles, labels = std.get_legend_handles_labels()
    elbo.legend(
        handles, labels, frameon=False, ncols=3, columnspacing=1.2, loc="upper center", bbox_to_anchor=(0.5, -0.35)
    )


def _draw_balance(axes: Axes, methods: dict[str, Any], column: str, title: str) -> None:
    for name, (label, colour) in LEARNED.items():
        rows = [row for row in methods[name]["per_seed"].values() if row[column] is not None]
        predicted, settled = [row[column] for row in rows], [row["std_settled"] for row in rows]
        axes.plot(predicted, settled, "o", color=colour, markersize=4.5, alpha=0.75, label=label)
    axes.plot((0.004, 0.25), (0.004, 0.25), color="0.6", linewidth=1, zorder=0)
    axes.set(xscale="log", yscale="log", xlabel="balance point σ*", title=title)
    ticks = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
    axes.set(xticks=ticks, yticks=ticks)
    axes.minorticks_off()
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
