"""Can the data's gradient get to φ? A walk over autograd's graph, which costs no backward pass."""

from __future__ import annotations

from torch import Tensor

from optima.augment.augmenter import Augmenter
from optima.bayes.layers import live_layers
from optima.posterior import LearnedPhi


def unreached(data_term: Tensor, augment: Augmenter) -> list[str]:
    """The names of the learned φ that no path of gradients connects to the data term."""
    leaves = _leaves(data_term)
    return [
        name
        for name, phi in augment.named_phi()
        if isinstance(phi, LearnedPhi) and phi.loc.requires_grad and id(phi.loc) not in leaves
    ]


def is_bayesian(data_term: Tensor) -> bool:
    """Whether a `BayesianLinear` had a part in it."""
    leaves = _leaves(data_term)
    return any(id(layer.weight_loc) in leaves for layer in live_layers())


def _leaves(tensor: Tensor) -> set[int]:
    """ids of the leaf tensors that `tensor` depends on."""
    found: set[int] = set()
    seen = set()
    stack = [tensor.grad_fn]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if (variable := getattr(node, "variable", None)) is not None:
            found.add(id(variable))
        stack.extend(following for following, _ in node.next_functions)
    return found
