"""Counter-based noise: what a draw depends on, and what it does not."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.distributions import Gamma, Normal
from torch.utils.data import DataLoader, Dataset

from optima import GaussianNoise, Mixup, Rotate, Sequential, Shift, TokenDropout, Translate, learn
from optima.augment import Augmenter
from optima.streams import GeneratorNoise, Stream

CPU = torch.device("cpu")
IMAGES = torch.linspace(0, 1, 4 * 3 * 6 * 6).reshape(4, 3, 6, 6)
LABELS = torch.tensor([0, 1, 2, 1])


def normal(stream: Stream, name: str = "a", count: int = 5) -> Tensor:
    return stream.noise(name).normal((count,), dtype=torch.float64, device=CPU)


# ---- streams ---------------------------------------------------------------------------------------------------


def test_same_seed_name_and_count_give_the_same_noise():
    one, two = Stream(7), Stream(7)
    first = [normal(one), normal(one)]
    assert torch.equal(first[0], normal(two))
    assert torch.equal(first[1], normal(two))
    assert not torch.equal(first[0], first[1])


def test_seed_name_and_count_each_change_the_noise():
    base = normal(Stream(7))
    assert not torch.equal(base, normal(Stream(8)))
    assert not torch.equal(base, normal(Stream(7), "b"))
    later = Stream(7)
    normal(later)
    assert not torch.equal(base, normal(later))


def test_dotted_names_nest():
    stream = Stream(7)
    nested = stream.noise("a").named("b").named("c").normal((3,), dtype=torch.float64, device=CPU)
    assert torch.equal(nested, normal(Stream(7), "a.b.c", 3))


@pytest.mark.parametrize("who", ["_rank", "_worker"])
def test_ranks_and_workers_differ(who: str, monkeypatch: pytest.MonkeyPatch):
    draws = []
    for number in range(4):
        monkeypatch.setattr(f"optima.streams.{who}", lambda number=number: number)
        draws.append(normal(Stream(7)))
    assert len({tuple(draw.tolist()) for draw in draws}) == 4


def test_names_are_independent_and_normal():
    stream = Stream(7)
    columns = torch.stack([normal(stream, f"name{i}", 50_000) for i in range(3)])
    bound = 5 / 50_000**0.5
    assert float((columns.mean(1)).abs().max()) < bound
    assert float((columns.square().mean(1) - 1).abs().max()) < bound * 2**0.5
    off_diagonal = torch.corrcoef(columns) - torch.eye(3, dtype=torch.float64)
    assert float(off_diagonal.abs().max()) < bound


def test_successive_counts_are_independent():
    stream = Stream(7)
    first = torch.stack([normal(stream, "a", 2) for _ in range(5000)])
    bound = 5 / 5000**0.5
    assert abs(float((first[1:, 0] * first[:-1, 0]).mean())) < bound
    assert abs(float((first[:, 0] * first[:, 1]).mean())) < bound


def test_uniform_and_gamma_noise():
    stream = Stream(7)
    uniform = stream.noise("a").uniform((50_000,), dtype=torch.float64, device=CPU)
    assert float(uniform.min()) >= 0
    assert float(uniform.max()) < 1
    assert float(uniform.mean()) == pytest.approx(0.5, abs=5 * (1 / 12 / 50_000) ** 0.5)
    gamma = stream.noise("a").gamma(torch.full((50_000,), 2.5, dtype=torch.float64, requires_grad=True))
    assert not gamma.requires_grad
    assert float(gamma.mean()) == pytest.approx(2.5, abs=5 * (2.5 / 50_000) ** 0.5)


def test_noise_keeps_its_stream_alive():
    noise = Stream(7).noise("a")
    assert torch.equal(noise.normal((5,), dtype=torch.float64, device=CPU), normal(Stream(7)))


def test_the_seed_comes_from_torchs_global_generator():
    torch.manual_seed(3)
    first = Stream().seed
    torch.manual_seed(3)
    assert Stream().seed == first
    assert Stream().seed != first


def test_drawing_leaves_the_global_generator_alone():
    stream = Stream(7)
    before = torch.get_rng_state()
    normal(stream)
    stream.noise("a").uniform((3,), dtype=torch.float32, device=CPU)
    stream.noise("a").gamma(torch.ones(3))
    generator = GeneratorNoise(torch.Generator().manual_seed(0))
    generator.normal((3,), dtype=torch.float32, device=CPU)
    generator.gamma(torch.ones(3))
    assert torch.equal(torch.get_rng_state(), before)


def test_generator_noise_consumes_its_generator_in_order():
    noise = GeneratorNoise(torch.Generator().manual_seed(0))
    expected = torch.Generator().manual_seed(0)
    assert torch.equal(
        noise.named("b").normal((3,), dtype=torch.float64, device=CPU),
        torch.randn(3, dtype=torch.float64, generator=expected),
    )
    assert torch.equal(
        noise.named("a").uniform((3,), dtype=torch.float32, device=CPU), torch.rand(3, generator=expected)
    )


def test_no_generator_is_torchs_global_one():
    torch.manual_seed(5)
    drawn = GeneratorNoise(None).normal((3,), dtype=torch.float32, device=CPU)
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.randn(3))


class Draws(Dataset):
    """Draws noise where a worker loads its rows."""

    def __init__(self) -> None:
        self.stream = Stream(7)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, row: int) -> Tensor:
        return normal(self.stream)


def test_every_epoch_of_a_loader_draws_anew():
    loader = DataLoader(Draws(), batch_size=None, num_workers=1)
    epochs = [tuple(float(row[0]) for row in loader) for _ in range(3)]
    assert len(set(epochs)) == 3
    torch.manual_seed(5)
    again = [tuple(float(row[0]) for row in loader) for _ in range(2)]
    torch.manual_seed(5)
    assert again == [tuple(float(row[0]) for row in loader) for _ in range(2)], "governed by torch.manual_seed"


def test_workers_of_a_loader_draw_different_noise():
    rows = list(DataLoader(Draws(), batch_size=None, num_workers=2))
    assert len({tuple(row.tolist()) for row in rows}) == 4


# ---- augmentations ---------------------------------------------------------------------------------------------

POLICIES: dict[str, Callable[[], Augmenter]] = {
    "shift": lambda: Shift(std=learn(1.0), mean=learn(0.0)),
    "noise": lambda: GaussianNoise(std=learn(1.0)),
    "rotate": lambda: Rotate(std=learn(10.0, prior=Gamma(2.0, 0.2))),
    "range": lambda: Rotate(range=learn(10.0)),
    "translate": lambda: Translate(std=learn([0.1, 0.2])),
    "mixup": lambda: Mixup(alpha=learn(0.2)),
    "scored": lambda: Mixup(alpha=learn(0.2), estimator="score_function"),
    "sequence": lambda: Sequential(
        Rotate(std=learn(10.0)), Sequential(Mixup(alpha=learn(0.2)), Shift(std=1.0)), Rotate(std=1.0)
    ),
    "prior on γ": lambda: Rotate(std=learn(10.0, posterior="point"), prior_gamma=Normal(0.0, 0.2)),
}


def step(augment: Augmenter) -> list[Tensor]:
    """One step's draws, as training makes them."""
    view = augment(IMAGES, LABELS)
    return [view.x.detach(), augment.kl().detach(), *(value.detach() for value in view.gamma.values())]


def same(one: list[Tensor], two: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def restored(augment: Augmenter, name: str) -> Augmenter:
    """A fresh policy that loads the other's state."""
    fresh = POLICIES[name]()
    fresh.load_state_dict(augment.state_dict())
    return fresh


def saved_as_a_whole(augment: Augmenter, name: str) -> Augmenter:
    buffer = io.BytesIO()
    torch.save(augment, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


TWINS: dict[str, Callable[[Augmenter, str], Augmenter]] = {
    "state_dict": restored,
    "deepcopy": lambda augment, name: copy.deepcopy(augment),
    "pickle": lambda augment, name: pickle.loads(pickle.dumps(augment)),  # noqa: S301
    "torch.save": saved_as_a_whole,
}


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("name", POLICIES)
def test_a_copy_continues_bit_for_bit(name: str, twin: str):
    augment = POLICIES[name]()
    for _ in range(3):
        step(augment)
    other = TWINS[twin](augment, name)
    assert same(step(augment), step(other))
    assert same(step(augment), step(other))


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize(
    "extra",
    [
        pytest.param(lambda augment: augment.kl(), id="one more KL, for a log"),
        pytest.param(lambda augment: augment.draw_inputs(IMAGES), id="a prediction"),
        pytest.param(lambda augment: augment(IMAGES, LABELS), id="one more view"),
    ],
)
def test_a_copy_continues_bit_for_bit_after_uneven_draws(extra: Callable[[Augmenter], object], twin: str):
    augment = POLICIES["rotate"]()
    step(augment)
    extra(augment)
    extra(augment)
    other = TWINS[twin](augment, "rotate")
    assert same(step(augment), step(other))


def test_state_is_restored_after_further_draws():
    augment = POLICIES["sequence"]()
    state = copy.deepcopy(augment.state_dict())
    first = step(augment)
    assert not same(first, step(augment))
    augment.load_state_dict(state)
    assert same(first, step(augment))


def test_adding_an_augmentation_does_not_shift_its_neighbours():
    def draws(*augmentations: Augmenter) -> dict[str, Tensor]:
        augment = Sequential(*augmentations)
        augment.stream = Stream(7)
        augment(IMAGES, LABELS)
        return dict(augment(IMAGES, LABELS).gamma)

    few = draws(Rotate(std=1.0), Mixup(alpha=0.2))
    many = draws(Shift(std=1.0), Rotate(std=1.0), GaussianNoise(std=1.0), Mixup(alpha=0.2), Translate(std=0.1))
    assert set(few) < set(many)
    assert all(torch.equal(value, many[name]) for name, value in few.items())


def test_two_of_a_kind_draw_different_noise():
    gamma = Sequential(Rotate(std=1.0), Rotate(std=1.0))(IMAGES).gamma
    assert not torch.equal(gamma["rotate.angle"], gamma["rotate_2.angle"])


def test_examples_and_samples_draw_different_noise():
    gamma = Rotate(std=1.0)(IMAGES, samples=3).gamma["angle"]
    assert len(gamma.unique()) == 12


@pytest.mark.parametrize("name", [*POLICIES, "tokens"])
def test_nothing_an_augmentation_does_touches_the_global_generator(name: str):
    build = POLICIES.get(name, lambda: TokenDropout(learn(0.2), mask_id=1))
    x = IMAGES if name in POLICIES else torch.arange(12).reshape(4, 3)
    augment = build()
    before = torch.get_rng_state()
    view = augment(x, LABELS)
    augment(x, LABELS, samples=2)
    augment(x, LABELS, generator=torch.Generator().manual_seed(0))
    augment(x, LABELS, replay=view.gamma)
    augment.draw_inputs(x)
    augment.kl()
    augment.summary()
    augment.frozen()(x, LABELS)
    if name != "prior on γ":
        augment.prior()(x, LABELS)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_generator_decides_every_draw_and_leaves_the_stream_alone():
    augment = POLICIES["sequence"]()

    def drawn() -> list[Tensor]:
        view = augment(IMAGES, LABELS, generator=torch.Generator().manual_seed(3))
        return [view.x.detach(), *(value.detach() for value in view.gamma.values())]

    state = augment.get_extra_state()
    assert same(drawn(), drawn())
    assert torch.equal(augment.get_extra_state(), state)


def test_torch_manual_seed_governs_a_new_policy():
    torch.manual_seed(11)
    first = step(POLICIES["sequence"]())
    torch.manual_seed(11)
    second = step(POLICIES["sequence"]())
    torch.manual_seed(12)
    third = step(POLICIES["sequence"]())
    assert same(first, second)
    assert not same(first, third)
