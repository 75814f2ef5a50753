r"""What was learned, and the proof: for every φ its unit, prior, posterior, and a verdict with the evidence for it.

Two numbers decide, neither of them a guess:

    z     the most extreme block-wise t-statistic of the *data term's* gradient along φ (`optima.gradient_record`)
    KL    KL(q(φ) ‖ p(φ)) in nats; for a point posterior the drop of log p(φ) below the prior's mode

`docs/verdicts.md` gives the rules and how they were checked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from optima.augment.augmenter import Augmenter
from optima.augment.base import Augmentation
from optima.distributions import readable
from optima.gradient_record import FIRST_BLOCK
from optima.intervals import Summary, summarise
from optima.posterior import LearnedPhi, Phi, PriorPhi
from optima.sampling import as_noise, sample
from optima.supports import bounds

Z_HEARD = 4.0
KL_MOVED = 0.1
COLLAPSED_SHARE = 0.1
COLLAPSED_MASS = 0.95
LEFT_START = 0.01
ROUNDING = 1e-6
_BETWEEN = "; "  # the elements of a vector φ

MOVED = "moved by the data"
AT_PRIOR = "at its prior (the data said nothing)"
COLLAPSED = "collapsed to no augmentation"
UNSETTLED = "not settled"
DIVERGED = "diverged"
UNTRAINED = "not trained"
FIXED = "fixed"


class Row(NamedTuple):
    """One φ. Numbers are lists where φ is a vector."""

    name: str
    unit: str
    prior: str
    mean: float | list[float]
    low: float | list[float]
    high: float | list[float]
    kl: float | None
    z: float | list[float] | None
    steps: int
    verdict: str
    evidence: str


class PolicySummary:
    """The table of a policy. Print it, or read `rows`.

    Args:
        rows: one for every φ.
        labels: what to call the elements of a vector φ, by its name; numbers unless given.
    """

    def __init__(self, rows: list[Row], labels: Mapping[str, Sequence[str]] | None = None):
        self.rows = rows
        self.labels = labels or {}

    def __str__(self) -> str:
        header = ("φ", "unit", "prior mean (90 %)", "posterior mean (90 %)", "verdict")
        body = [line for row in self.rows for line in _lines(row, self.labels.get(row.name, ()))]
        widths = [max(len(line[column]) for line in (header, *body)) for column in range(len(header))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in (header, *body)
        ]
        lines.insert(1, "  ".join("─" * width for width in widths))
        lines += [f"{r.name}: {r.evidence}" for r in self.rows if r.evidence]
        return "\n".join(lines)

    __repr__ = __str__


def summarise_policy(augment: Augmenter) -> PolicySummary:
    """The summary of every φ in the policy."""
    rows, labels = [], {}
    for prefix, leaf in augment.leaves():
        for name, phi in leaf.named_phi(f"{prefix}." if prefix else ""):
            rows.append(_row(name, phi, leaf))
            labels[name] = leaf.domains[name.rpartition(".")[2]].labels
    return PolicySummary(rows, labels)


def _lines(row: Row, labels: Sequence[str]) -> list[tuple[str, ...]]:
    """A φ in the table: one line, or for a vector one more per element, below its name."""
    posterior = _interval(row.mean, row.low, row.high)
    if not isinstance(row.mean, list):
        return [(row.name, row.unit or "–", row.prior, posterior, row.verdict)]
    elements = posterior.split(_BETWEEN)
    names = labels if len(labels) == len(elements) else [f"[{number}]" for number in range(1, len(elements) + 1)]
    unit, units = _shared_out(row.unit, ", ", len(elements))
    prior, priors = _shared_out(row.prior, _BETWEEN, len(elements))
    return [
        (row.name, unit or ("" if row.unit else "–"), prior, "", row.verdict),
        *((f"  {line[0]}", *line[1:], "") for line in zip(names, units, priors, elements, strict=True)),
    ]


def _shared_out(text: str, between: str, count: int) -> tuple[str, list[str]]:
    """What is said of all elements together, and of each of them."""
    parts = text.split(between)
    return ("", parts) if len(parts) == count > 1 else (text, [""] * count)


def _row(name: str, phi: Phi, leaf: Augmentation) -> Row:
    domain = leaf.domains[name.rpartition(".")[2]]
    mean, low, high = (_plain(part) for part in phi.summary())
    if not isinstance(phi, LearnedPhi):
        verdict = "drawn from its prior" if isinstance(phi, PriorPhi) else FIXED
        prior = _describe(phi.summary()) if isinstance(phi, PriorPhi) else "–"
        return Row(name, domain.unit, prior, mean, low, high, None, None, 0, verdict, "")
    kl = _distance(phi, leaf)
    verdict, evidence = _judge(phi, domain.off, kl)
    prior = "on γ" if phi.prior is None else _describe(summarise(phi.prior, phi.support))
    steps = int(phi.record.steps)
    return Row(
        name,
        domain.unit,
        prior,
        mean,
        low,
        high,
        None if math.isnan(kl) else kl,
        _finite(phi.record.z()),
        steps,
        verdict,
        evidence,
    )


def _distance(phi: LearnedPhi, leaf: Augmentation) -> float:
    """How far the data would have had to move q(φ): nats from its prior, or of γ's law from γ's prior."""
    if phi.prior is not None or leaf.prior_gamma is None:
        return phi.excess()
    with torch.no_grad():
        return float(leaf.kl_gamma(leaf.stream.noise("summary")))


def _judge(phi: LearnedPhi, off: float | None, kl: float) -> tuple[str, str]:
    steps = int(phi.record.steps)
    if not all(bool(part.isfinite().all()) for part in phi.parameters()):
        return DIVERGED, "it is not a number any more: look for NaN in the loss, or lower its learning rate"
    if steps == 0:
        return UNTRAINED, "no gradient of the data has reached it"
    zs = phi.record.z()
    z = float(zs.flatten()[zs.abs().argmax()]) if zs.numel() else 0.0
    heard, moved = abs(z) >= Z_HEARD, not kl < KL_MOVED
    direction = _direction(phi, off, z)
    facts = f"z = {z:+.1f} over {steps} steps, KL = {'–' if math.isnan(kl) else f'{kl:.2f} nats'}"
    if heard and moved and phi.distance_from_start() < LEFT_START:
        return UNSETTLED, f"the data pushes it {direction}, yet it is where it started: is it in the optimizer? {facts}"
    if heard and off is not None and _is_off(phi, off):
        return COLLAPSED, f"the data pushed it {direction}; {facts}"
    if heard and moved:
        return MOVED, f"the data pushed it {direction}; {facts}"
    if heard:
        return (
            UNSETTLED,
            f"the data pushes it {direction}, yet it is still at its prior: train longer, or raise its rate; {facts}",
        )
    if steps < FIRST_BLOCK:
        count = "1 step" if steps == 1 else f"{steps} steps"
        return UNSETTLED, f"only {count} of the data's gradient so far: too few to say"
    if not moved:
        return AT_PRIOR, f"the data's gradient is no more than noise; {facts}"
    return UNSETTLED, f"the data's gradient is no more than noise, and it has not come to its prior either; {facts}"


def _direction(phi: LearnedPhi, off: float | None, z: float) -> str:
    """Away from no augmentation or towards it, where that is an end of the support; up or down elsewhere."""
    ends = bounds(phi.support)
    if off is None or ends is None or not any(bool((torch.as_tensor(end) == off).all()) for end in ends):
        return "up" if z > 0 else "down"
    return "wider" if (z > 0) == bool((phi.summary().mean >= off).all()) else "narrower"


def _is_off(phi: LearnedPhi, off: float) -> bool:
    """Whether nearly all of q(φ) is within a tenth of the prior's typical distance from no augmentation."""
    with torch.no_grad():
        generator = torch.Generator(phi.loc.device).manual_seed(0)
        q = phi.draw(4096, dtype=torch.float32, device=phi.loc.device, noise=as_noise(generator), watch=False)
        typical = _typical(phi, off, generator)
    return bool((((q - off).abs() < COLLAPSED_SHARE * typical).float().mean(0) >= COLLAPSED_MASS).all())


def _typical(phi: LearnedPhi, off: float, generator: torch.Generator) -> Tensor:
    if phi.prior is None:
        return (phi.start - off).abs().to(phi.loc.device)
    return (sample(phi.prior, (4096,), noise=generator) - off).abs().median(0).values


def _describe(summary: Summary) -> str:
    return _interval(*(_plain(part) for part in summary))


def _interval(mean, low, high) -> str:
    if isinstance(mean, list):
        return _BETWEEN.join(_interval(*part) for part in zip(mean, low, high, strict=True))
    if low == high:
        return f"{mean:.3g}"
    mean = 0.0 if abs(mean) < ROUNDING * (high - low) else mean  # a symmetric law's mean is 0 up to rounding
    return f"{mean:.3g} ({low:.3g} … {high:.3g})"


def _plain(tensor: Tensor) -> float | list[float]:
    return readable(tensor.float())


def _finite(z: Tensor) -> float | list[float]:
    """A JSON number even where a gradient without any spread made z infinite."""
    return _plain(z.nan_to_num(posinf=1e9, neginf=-1e9))
