"""Charts as inline SVG, in the page's own ink so that they suit light and dark. Needs matplotlib."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import imsave

from optima.metrics import ReliabilityBins
from optima.report.elements import Markup, image

# grey, and two of Okabe and Ito's colours made legible on black and on white
COLOURS = {"none": "#8c9096", "fixed": "#d9822b", "learned": "#2f8fcf"}
_INK = "#010203"  # stands for the page's text colour, which a drawing cannot know
_WIDTH = 7.2
_Z90 = 1.6448536
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "optima",
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.linewidth": 0.7,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), _INK),
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), "none"),
}


class Trace(NamedTuple):
    """One φ over the epochs: median and 90 % interval, where it started, and its prior's 90 % interval."""

    label: str
    median: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    start: float
    prior: tuple[float, float]


def reliability_chart(tables: Mapping[str, ReliabilityBins], description: str) -> Markup:
    """Accuracy against confidence per method, with how many predictions each bin holds below."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, 3.5), layout="constrained")
        panels = figure.subplots(2, len(tables), sharex=True, sharey="row", height_ratios=(3, 1), squeeze=False)
        for (upper, lower), (name, bins) in zip(panels.T, tables.items(), strict=True):
            _draw_reliability(upper, name, bins)
            _draw_counts(lower, name, bins)
        panels[0, 0].set_ylabel("accuracy")
        panels[1, 0].set_ylabel("images")
        return _svg(figure, "reliability", description)


def trace_chart(traces: Sequence[Trace], description: str) -> Markup:
    """Every φ over the epochs."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, 2.9), layout="constrained")
        panels = figure.subplots(1, len(traces), squeeze=False)[0]
        for axes, trace in zip(panels, traces, strict=True):
            _draw_trace(axes, trace)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
        return _svg(figure, "trace", description)


def digit_strip(images: np.ndarray, description: str) -> Markup:
    """Small grey images, shape (rows, columns, H, W) with values in [0, 1], as one inline picture."""
    rows, columns, height, width = images.shape
    canvas = np.zeros((rows * (height + 1) - 1, columns * (width + 1) - 1, 4))
    for row in range(rows):
        for column in range(columns):
            top, left = row * (height + 1), column * (width + 1)
            tile = canvas[top : top + height, left : left + width]
            tile[..., :3], tile[..., 3] = images[row, column, ..., None].clip(0, 1), 1
    file = io.BytesIO()
    imsave(file, canvas, format="png")
    return image("data:image/png;base64," + base64.b64encode(file.getvalue()).decode(), description)


def _draw_reliability(axes: Axes, name: str, bins: ReliabilityBins) -> None:
    filled = [i for i, count in enumerate(bins.count.tolist()) if count]
    accuracy, count = (part[filled].numpy() for part in (bins.accuracy, bins.count))
    centre = ((bins.edges[1:] + bins.edges[:-1]) / 2)[filled].numpy()
    low, high = wilson(accuracy, count)
    axes.bar(centre, accuracy, width=0.088, color=COLOURS[name], alpha=0.55)
    # rounding may put an end of the interval a hair inside the accuracy itself
    whiskers = np.clip([accuracy - low, high - accuracy], 0, None)
    axes.errorbar(centre, accuracy, yerr=whiskers, fmt="none", ecolor=_INK, elinewidth=0.8, alpha=0.7)
    axes.plot((0, 1), (0, 1), color=_INK, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.set(xlim=(0, 1), ylim=(0, 1.02), title=name, xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
    axes.xaxis.set_major_formatter("{x:g}")


def _draw_counts(axes: Axes, name: str, bins: ReliabilityBins) -> None:
    centre = ((bins.edges[1:] + bins.edges[:-1]) / 2).numpy()
    axes.bar(centre, bins.count.numpy(), width=0.088, color=COLOURS[name])
    axes.set(yscale="log", ylim=(0.8, 3 * float(bins.count.sum())), xlabel="confidence", yticks=(1, 30, 1000))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()


def _draw_trace(axes: Axes, trace: Trace) -> None:
    epochs, colour = range(1, len(trace.median) + 1), COLOURS["learned"]
    axes.axhspan(*trace.prior, color=_INK, alpha=0.07, linewidth=0, label="prior, 90 %")
    axes.axhline(trace.start, color=COLOURS["fixed"], linestyle=(0, (4, 3)), linewidth=1.2, label="the guess")
    axes.fill_between(epochs, trace.low, trace.high, color=colour, alpha=0.25, linewidth=0, label="q(φ), 90 %")
    axes.plot(epochs, trace.median, color=colour, linewidth=1.6, label="q(φ), median")
    # one epoch has no width of its own
    axes.set(xlim=(0, len(trace.median) + 1), ylim=(0, None), xlabel="epoch", title=trace.label)


def wilson(share: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's 90 % interval of a share out of a count."""
    z2 = _Z90**2 / count
    centre = (share + z2 / 2) / (1 + z2)
    half = np.sqrt(z2 * (share * (1 - share) + z2 / 4)) / (1 + z2)
    return centre - half, centre + half


def _svg(figure: Figure, name: str, description: str) -> Markup:
    """The drawing as an element of the page: no prologue, no metadata, its ids its own, its ink the page's."""
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    drawing = file.getvalue()
    drawing = drawing[drawing.index("<svg") :].replace(_INK, "currentColor")
    drawing = re.sub(r'(\bid="|"#|url\(#)', rf"\g<1>{name}-", drawing)
    return Markup(drawing.replace("<svg", f'<svg role="img" aria-label="{escape(description)}"', 1))
