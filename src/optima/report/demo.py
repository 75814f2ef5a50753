"""The page of `optima demo`. Needs matplotlib."""

from __future__ import annotations

import torch
from torch import Tensor

from optima.augment.augmenter import Augmenter
from optima.experiments.three_ways import DRAWS, GUESS, Comparison, Epoch
from optima.metrics import reliability
from optima.posterior import Summary
from optima.report.charts import Trace, digit_strip, reliability_chart, trace_chart
from optima.report.elements import Markup, element, figure, page, section, table
from optima.report.findings import CAVEAT, findings, scores
from optima.version import __version__

_DRAWS_SHOWN = 3


def demo_page(comparison: Comparison) -> str:
    """The whole document."""
    return page(
        "optima demo: digits, three ways",
        element("h1", "How strongly should these digits be augmented?"),
        _lead(comparison),
        section("Results", _scores(comparison), _score_note(comparison)),
        section("What the numbers say", _findings(comparison), element("p", CAVEAT, class_="note")),
        section("Where the strengths ended", _strengths(comparison), _traces(comparison)),
        section("What the strengths look like", _samples(comparison)),
        section("Can its confidence be trusted?", _reliability(comparison)),
        _footer(comparison),
    )


def _lead(comparison: Comparison) -> Markup:
    return element(
        "p",
        f"One small convolutional network was trained three times on the same {len(comparison.train.labels)} "
        f"handwritten digits (8×8 pixels), for {comparison.epochs} epochs and from the same initial weights: "
        "without augmentation (none); with a usual guess, rotations with a standard deviation of "
        f"{GUESS['rotate.std']:g} degrees and shifts of {GUESS['translate.std']:g} of the image's size (fixed); and "
        "with both strengths left to the training itself, which starts from that guess and maximises the augmented "
        f"ELBO (learned). The other {len(comparison.test.labels):,} digits judge. So few training images are used on "
        "purpose: with many, every method is nearly perfect and nothing can be told apart.",
        class_="lead",
    )


def _scores(comparison: Comparison) -> Markup:
    scored = scores(comparison)
    rows = [
        (run.name, f"{100 * s.accuracy:.2f} %", f"{s.nll:.3f}", f"{s.ece:.3f}", f"{run.seconds:.1f}")
        for run, s in zip(comparison.runs, scored.values(), strict=True)
    ]
    return table(("method", "accuracy", "NLL (nats)", "ECE", "seconds"), rows)


def _score_note(comparison: Comparison) -> Markup:
    return element(
        "p",
        f"On {len(comparison.test.labels):,} unaugmented test images. NLL is the mean of −log p(label), ECE the "
        "expected calibration error over 10 bins; of both, lower is better. Probabilities are averaged over "
        f"{DRAWS} draws of the Bayesian last layer. Seconds are of training, on one thread.",
        class_="note",
    )


def _findings(comparison: Comparison) -> Markup:
    return element("ul", *(element("li", sentence) for sentence in findings(comparison)))


def _strengths(comparison: Comparison) -> Markup:
    rows = [
        (row.name, row.unit, row.prior, f"{row.mean:.3g} ({row.low:.3g} … {row.high:.3g})", row.verdict)
        for row in comparison.learned_rows()
    ]
    return table(("φ", "unit", "prior mean (90 %)", "posterior mean (90 %)", "verdict"), rows)


def _traces(comparison: Comparison) -> Markup:
    learned = comparison.runs[-1]
    units = {row.name: row.unit for row in comparison.learned_rows()}
    priors = {name: phi.summary() for name, phi in learned.augment.prior().named_phi()}
    traces = [_trace(name, units[name], learned.path, priors[name]) for name in units]
    return figure(
        trace_chart(traces, "The learned strengths over the epochs of training"),
        "The median of q(φ) after every epoch, with its 90 % interval. The grey band is the prior's 90 % interval: "
        "the guess, within a factor of about two. The dashed line is the guess, which the fixed method keeps.",
    )


def _trace(name: str, unit: str, path: list[Epoch], prior: Summary) -> Trace:
    low, median, high = zip(*(epoch.phi[name] for epoch in path), strict=True)
    return Trace(f"{name} ({unit})", median, low, high, GUESS[name], (float(prior.low), float(prior.high)))


def _samples(comparison: Comparison) -> Markup:
    digits = _one_of_each(comparison)
    _, fixed, learned = (run.augment for run in comparison.runs)
    strips = [
        _strip("original", "", digits[None]),
        _strip("fixed", "the guess", _drawn(fixed, digits)),
        _strip("learned", "q(φ) at the end", _drawn(learned, digits)),
        _strip("prior", "before any data", _drawn(learned.prior(), digits)),
    ]
    return figure(
        element("div", *strips),
        f"One training digit of each class, and {_DRAWS_SHOWN} draws of each.",
    )


def _one_of_each(comparison: Comparison) -> Tensor:
    labels = comparison.train.labels.tolist()
    return comparison.train.images[[labels.index(label) for label in sorted(set(labels))]]


def _drawn(augment: Augmenter, digits: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        return torch.stack([augment.draw_inputs(digits, generator) for _ in range(_DRAWS_SHOWN)])


def _strip(name: str, note: str, images: Tensor) -> Markup:
    picture = digit_strip(images.squeeze(2).numpy(), f"{name}: ten digits, {len(images)} draws of each")
    return element("div", element("div", name, element("small", note), class_="label"), picture, class_="strip")


def _reliability(comparison: Comparison) -> Markup:
    tables = {run.name: reliability(run.probs, comparison.test.labels) for run in comparison.runs}
    return figure(
        reliability_chart(tables, "Accuracy against confidence for the three methods"),
        "Test images grouped by the confidence of the prediction: of those predicted with 80 % confidence, 80 % "
        "should be right (dashed). Whiskers are 90 % intervals of the accuracy; the lower panels count the images, "
        "on a logarithmic scale.",
    )


def _footer(comparison: Comparison) -> Markup:
    return element(
        "footer",
        f"optima {__version__}, torch {torch.__version__}, seed {comparison.seed}. The digits: E. Alpaydin and C. "
        "Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository, CC BY 4.0. The numbers "
        "are in results.json; the policy is in policy.json and policy.safetensors, and "
        'optima.load("policy") reads it.',
    )
