"""Blending, adding and masking, row by row."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from optima.transforms import add_noise, mask_tokens, mix, shift
from optima.transforms.signal import per_example

SHAPES = [(4, 3), (4, 2, 5), (4, 3, 5, 7)]


def signal(shape: tuple[int, ...], seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", SHAPES)
def test_mix_is_a_loop_over_rows(shape: tuple[int, ...]):
    x, partner, lam = signal(shape), torch.tensor([2, 1, 0, 0]), torch.tensor([0.0, 0.3, 1.0, 0.7]).double()
    mixed = mix(x, partner, lam)
    for row in range(4):
        exact = lam[row] * x[row] + (1 - lam[row]) * x[partner[row]]
        torch.testing.assert_close(mixed[row], exact, rtol=0.0, atol=1e-15)


def test_mix_with_all_of_oneself_or_with_oneself_is_the_identity():
    x = signal((4, 3))
    assert torch.equal(mix(x, torch.tensor([1, 2, 3, 0]), torch.ones(4, dtype=torch.float64)), x)
    torch.testing.assert_close(mix(x, torch.arange(4), signal((4,))), x, rtol=0.0, atol=1e-14)


@pytest.mark.parametrize("shape", SHAPES)
def test_shift_adds_one_number_per_row(shape: tuple[int, ...]):
    x, amount = signal(shape), signal((4,), seed=1)
    for row in range(4):
        assert torch.equal(shift(x, amount)[row], x[row] + amount[row])
    assert torch.equal(shift(x, torch.zeros(4, dtype=torch.float64)), x)


def test_noise_is_added_elementwise():
    x, noise = signal((4, 3)), signal((4, 3), seed=1)
    assert torch.equal(add_noise(x, noise), x + noise)
    assert torch.equal(add_noise(x, torch.zeros_like(x)), x)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("dropped", [torch.bool, torch.float32])
def test_tokens_are_replaced_where_dropped(dtype: torch.dtype, dropped: torch.dtype):
    tokens = torch.tensor([[5, 6, 7], [8, 9, 10]], dtype=dtype)
    where = torch.tensor([[1, 0, 0], [0, 1, 1]]).to(dropped)
    masked = mask_tokens(tokens, where, 3)
    assert masked.dtype == dtype
    assert masked.tolist() == [[3, 6, 7], [8, 3, 3]]
    assert tokens.tolist() == [[5, 6, 7], [8, 9, 10]]
    assert torch.equal(mask_tokens(tokens, torch.zeros_like(where), 3), tokens)


def test_per_example_broadcasts_over_the_rest():
    assert per_example(torch.arange(4.0), torch.zeros(4, 3, 2)).shape == (4, 1, 1)
    assert per_example(torch.arange(4.0), torch.zeros(4)).shape == (4,)


def test_gradients_are_those_of_finite_differences():
    x, partner = signal((4, 3)).requires_grad_(), torch.tensor([2, 1, 0, 0])
    lam = torch.tensor([0.0, 0.3, 1.0, 0.7], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, lam: mix(x, partner, lam), (x, lam))
    assert torch.autograd.gradcheck(shift, (x, lam))
    assert torch.autograd.gradcheck(add_noise, (x, signal((4, 3), seed=1).requires_grad_()))
