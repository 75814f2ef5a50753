"""Several versions of one view, put together row by row: what rows chose, or a blend of everything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from optima.augment.view import MixedTarget, Score, Target, View, like


def blended(view: View, before: View, views: Sequence[View], weights: Tensor) -> View:
    """Σ_k w_k T_k(x), for weights (rows, branches); every branch's draws then matter to every row."""
    if not view.x.is_floating_point():
        raise TypeError(f'a relaxed choice blends its inputs, which {view.x.dtype} does not; use "score_function"')
    if any(branch.target is not before.target for branch in views):
        raise ValueError('a relaxed choice cannot blend the targets that its branches change; use "score_function"')
    total = sum(
        weight.view(-1, *[1] * (view.x.ndim - 1)) * branch.settled().x
        for branch, weight in zip(views, weights.unbind(1), strict=True)
    )
    scores = [score for branch in views for score in branch.scores]
    return replace(view, x=like(torch.as_tensor(total), view.x), scores=(*before.scores, *view.scores, *scores))


def selected(view: View, before: View, views: Sequence[View], chosen: Sequence[Tensor], *, mixes: bool) -> View:
    """Each row as the branch that it chose leaves it.

    Args:
        view: the view with the choice drawn, and only that to be credited.
        before: as the branches met it.
        views: as each branch leaves it; with `mixes`, its first score is a probe of what rows depend on.
        chosen: for each branch, the rows that chose it, (rows,) of booleans.
        mixes: some branch combines rows; else each row depends on itself, and no rows × rows are needed to say so.
    """
    parts = [_rows(branch, rows) for branch, rows in zip(views, chosen, strict=True)]
    back = torch.cat([index for index, _ in parts]).argsort()

    def together(name: str) -> Tensor | None:
        values = [getattr(part, name) for _, part in parts]
        return None if values[0] is None else torch.cat(values).index_select(0, back)

    x = together("x")
    assert x is not None  # noqa: S101  a view has pixels
    own = tuple(
        score.where(rows)
        for branch, rows in zip(views, chosen, strict=True)
        for score in (branch.scores[1:] if mixes else branch.scores)
    )
    earlier = _through(before, views, chosen) if mixes else before.scores
    scores = (*earlier, *view.scores, *own)
    target = _target([branch.target for branch in views], chosen)
    return replace(
        view, x=like(x, before.x), mask=together("mask"), boxes=together("boxes"), target=target, scores=scores
    )


def _rows(branch: View, chosen: Tensor) -> tuple[Tensor, View]:
    """The rows that chose a branch: their numbers, and the branch applied to them alone where it can be."""
    index = chosen.nonzero().flatten()
    whole = any(getattr(operator, "together", False) for operator in branch.pending)
    if whole and len(index):
        return index, branch.settled().cut(index)
    if not len(index):
        return index, replace(branch.cut(index), pending=())
    return index, branch.cut(index).settled()


def _through(before: View, views: Sequence[View], chosen: Sequence[Tensor]) -> tuple[Score, ...]:
    """What was drawn before, as far as each row still depends on it after the branch that it chose."""
    probes = [branch.scores[0].reach for branch in views]
    reach = torch.stack([torch.zeros_like(rows) if p is None else p for p, rows in zip(probes, chosen, strict=True)])
    needs = (reach & torch.stack(list(chosen)).unsqueeze(-1)).any(0)
    # what it might have needed under any choice, those inside the branches included
    possible = [branch.scores[0].sources() for branch in views]
    might_need = torch.stack([torch.zeros_like(needs) if p is None else p for p in possible]).any(0)
    return tuple(score.through(needs, might_need) for score in before.scores)


def _target(targets: Sequence[Target | None], chosen: Sequence[Tensor]) -> Target | None:
    """Each row's target as its branch leaves it."""
    first = targets[0]
    if first is None or all(target is first for target in targets):
        return first
    if all(isinstance(target, Tensor) for target in targets):
        rows = [rows.view(-1, *[1] * (first.ndim - 1)) for rows in chosen]  # pyright: ignore[reportAttributeAccessIssue]
        return _picked(targets, rows)
    mixed = [_as_mixed(target) for target in targets]
    parts = max(len(target.labels) for target in mixed)
    padded = [_padded(target, parts) for target in mixed]
    shape = [1] * (padded[0].labels[0].ndim - 1)
    labels = tuple(
        _picked([target.labels[part] for target in padded], [rows.view(-1, *shape) for rows in chosen])
        for part in range(parts)
    )
    return MixedTarget(labels, _picked([target.weights for target in padded], [rows.unsqueeze(1) for rows in chosen]))


def _picked(values: Sequence, chosen: Sequence[Tensor]) -> Tensor:
    result = values[0]
    for value, rows in zip(values[1:], chosen[1:], strict=True):
        result = torch.where(rows, value, result)
    return result


def _as_mixed(target: Target | None) -> MixedTarget:
    if isinstance(target, MixedTarget):
        return target
    assert target is not None  # noqa: S101  either all branches have a target or none has
    return MixedTarget((target,), torch.ones(len(target), 1, device=target.device))


def _padded(target: MixedTarget, parts: int) -> MixedTarget:
    """The same target in so many parts, the further ones without weight."""
    more = parts - len(target.labels)
    if not more:
        return target
    zeros = target.weights.new_zeros(len(target.weights), more)
    return MixedTarget((*target.labels, *[target.labels[0]] * more), torch.cat([target.weights, zeros], 1))
