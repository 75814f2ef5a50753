"""A policy on disk: it comes back bit for bit, is never torn, and nothing in it is executed."""

from __future__ import annotations

import ast
import copy
import inspect
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import (
    Bernoulli,
    Beta,
    Distribution,
    Exponential,
    Gamma,
    HalfNormal,
    LogNormal,
    Normal,
    Pareto,
    Uniform,
    constraints,
)

import optima
from optima import GaussianNoise, Mixup, Rotate, Sequential, Shift, TokenDropout, Translate, learn
from optima.augment import Augmentation, Augmenter, policy
from optima.distributions import constraint_to_json
from optima.posterior import LearnedPhi
from optima.sampling import Relaxed, ScoreFunction, StraightThrough

IMAGES = torch.linspace(0, 1, 4 * 3 * 6 * 6).reshape(4, 3, 6, 6)
TOKENS = torch.arange(10, 30).reshape(4, 5)
LABELS = torch.tensor([0, 1, 2, 1])


class Gain(Augmentation):
    """A family of the user's, in ten lines."""

    def __init__(self, std: Any, *, offset: float = 0.0, **options: Any):
        super().__init__(**options)
        self.add_phi("std", std, support=constraints.positive, off=0.0)
        self.offset = offset

    def p_gamma(self, phi: dict[str, Tensor]) -> dict[str, Distribution]:
        return {"log_gain": Normal(0.0, phi["std"])}

    def transform(self, x: Tensor, gamma: dict[str, Tensor]) -> Tensor:
        return x * (self.offset + gamma["log_gain"].exp().view(-1, 1, 1, 1))


class Flip(Augmentation):
    """A family with a discrete γ, whose extra options go by another name."""

    def __init__(self, p: Any, **rest: Any):
        super().__init__(**rest)
        self.add_phi("p", p, support=constraints.unit_interval, off=0.0)

    def p_gamma(self, phi: dict[str, Tensor]) -> dict[str, Distribution]:
        return {"flipped": Bernoulli(probs=phi["p"], validate_args=False)}

    def transform(self, x: Tensor, gamma: dict[str, Tensor]) -> Tensor:
        share = gamma["flipped"].view(-1, 1, 1, 1)
        return share * x.flip(-1) + (1 - share) * x


POLICIES: dict[str, Callable[[], Augmenter]] = {
    "shift": lambda: Shift(std=learn(1.0), mean=0.25),
    "learned mean": lambda: Rotate(std=learn(10.0), mean=learn(1.0), padding="border"),
    "noise": lambda: GaussianNoise(std=learn(0.5), phi_draws="batch"),
    "range": lambda: Rotate(range=learn(10.0, prior=Uniform(0.1, 33.3))),
    "pair": lambda: Translate(std=learn([0.1, 0.2], prior=LogNormal(-2.0, 0.7))),
    "fixed pair": lambda: Translate(range=[0.1, 0.2]),
    "mixup": lambda: Mixup(alpha=learn(0.2, prior=Beta(2.0, 5.0), scale=0.3)),
    "scored": lambda: Mixup(alpha=learn(0.2, posterior="point"), estimator="score_function"),
    "estimator object": lambda: Mixup(alpha=learn(0.2), estimator=ScoreFunction()),
    "tokens": lambda: TokenDropout(
        learn(0.0596, support=constraints.interval(0.0, 0.5), prior=Normal(0.1, 0.1), posterior="point"),
        103,
        special_ids=[0, 101, 102],
    ),
    "prior on γ": lambda: Rotate(std=learn(10.0, posterior="point"), prior_gamma=Normal(0.0, 0.2)),
    "named prior on γ": lambda: Shift(std=learn(1.0, prior=Gamma(2.0, 3.0)), prior_gamma={"shift": Normal(0.0, 2.0)}),
    "frozen": lambda: Rotate(std=learn(10.0)).frozen(),
    "own": lambda: Gain(learn(0.3), offset=0.5, phi_draws="batch"),
    "own, relaxed": lambda: Flip(learn(0.3), estimator=Relaxed(0.3)),
    "own, straight through": lambda: Flip(learn(0.3), estimator=StraightThrough(temperature=0.7)),
    "sequence": lambda: Sequential(
        Rotate(std=learn(10.0)), Sequential(Mixup(alpha=learn(0.2)), Shift(std=1.0)), Rotate(range=1.0)
    ),
}
each_policy = pytest.mark.parametrize("name", POLICIES)


def batch(name: str) -> Tensor:
    return TOKENS if name == "tokens" else IMAGES


def trained(name: str, steps: int = 3) -> Augmenter:
    """A policy whose state is not what its constructor made."""
    augment = POLICIES[name]()
    for _ in range(steps):
        view = augment(batch(name), LABELS)
        loss = augment.kl() + view.x.double().square().mean()
        loss = loss if view.log_prob is None else loss + view.log_prob.sum()
        if loss.requires_grad:
            loss.backward()
            with torch.no_grad():
                for parameter in augment.parameters():
                    parameter.sub_(0.05 * parameter.grad.sign())  # pyright: ignore
                    parameter.grad = None
    return augment


def draws(augment: Augmenter, x: Tensor) -> list[Tensor]:
    view = augment(x, LABELS)
    return [view.x.detach(), augment.kl().detach(), *(value.detach() for value in view.gamma.values())]


def same(one: list[Tensor], two: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def through_files(augment: Augmenter, folder: Path) -> Augmenter:
    optima.save(augment, folder / "policy")
    return optima.load(folder / "policy", families=[Gain, Flip])


@each_policy
def test_a_loaded_policy_continues_bit_for_bit(name: str, tmp_path: Path):
    augment = trained(name)
    loaded = through_files(augment, tmp_path)
    assert type(loaded) is type(augment)
    assert str(loaded.summary()) == str(augment.summary())
    for key, tensor in augment.state_dict().items():
        assert torch.equal(loaded.state_dict()[key], tensor), key
    for _ in range(2):
        assert same(draws(augment, batch(name)), draws(loaded, batch(name)))


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(lambda augment: (augment.kl(), augment.kl()), id="logging the KL"),
        pytest.param(lambda augment: augment.draw_inputs(IMAGES), id="predicting"),
        pytest.param(lambda augment: augment(IMAGES), id="saving between view and loss"),
    ],
)
def test_a_loaded_policy_continues_bit_for_bit_after_uneven_draws(
    before: Callable[[Augmenter], object], tmp_path: Path
):
    augment = Rotate(std=learn(10.0, prior=Gamma(2.0, 0.2)))
    before(augment)
    loaded = through_files(augment, tmp_path)
    assert same(draws(augment, IMAGES), draws(loaded, IMAGES))


@each_policy
def test_a_loaded_policy_is_built_of_the_same_arguments(name: str, tmp_path: Path):
    augment = trained(name)
    loaded = through_files(augment, tmp_path)
    for (_, one), (_, two) in zip(augment.leaves(), loaded.leaves(), strict=True):
        assert type(one) is type(two)
        assert one.estimator == two.estimator
        assert one.phi_draws == two.phi_draws
        for attribute in ("padding", "mask_id", "special_ids", "offset"):
            assert getattr(one, attribute, None) == getattr(two, attribute, None)
    for (_, one), (_, two) in zip(augment.named_phi(), loaded.named_phi(), strict=True):
        assert type(one) is type(two)
        if isinstance(one, LearnedPhi) and isinstance(two, LearnedPhi):
            assert (one.posterior, one.closed_form) == (two.posterior, two.closed_form)
            assert constraint_to_json(one.support) == constraint_to_json(two.support)


@each_policy
def test_saving_twice_writes_the_same_bytes(name: str, tmp_path: Path):
    augment = trained(name)
    loaded = through_files(augment, tmp_path)
    optima.save(loaded, tmp_path / "again")
    for ending in (".json", ".safetensors"):
        assert (tmp_path / f"again{ending}").read_bytes() == (tmp_path / f"policy{ending}").read_bytes()


def test_saving_changes_nothing(tmp_path: Path):
    augment = trained("sequence")
    twin = trained("sequence")
    twin.load_state_dict(augment.state_dict())
    optima.save(augment, tmp_path / "policy")
    assert same(draws(augment, IMAGES), draws(twin, IMAGES))


def test_the_json_is_for_people(tmp_path: Path):
    optima.save(Sequential(Rotate(std=learn(10.0), padding="border"), Mixup(alpha=0.2)), tmp_path / "policy")
    document = json.loads((tmp_path / "policy.json").read_text())
    assert document["kind"] == "optima policy"
    assert document["schema"] == 1
    rotate, mixup = document["augment"]["steps"]
    assert rotate["type"] == "Rotate"
    assert rotate["arguments"]["padding"] == "border"
    assert rotate["arguments"]["std"]["learn"] == 10.0
    assert mixup == {"type": "Mixup", "arguments": {"alpha": 0.2}}
    assert document["summary"][0]["name"] == "rotate.std"
    assert document["summary"][0]["unit"] == "degrees"


@pytest.mark.parametrize("ending", ["", ".json", ".safetensors"])
def test_the_ending_does_not_matter(ending: str, tmp_path: Path):
    optima.save(Rotate(std=1.0), tmp_path / f"run.v1{ending}" if ending else tmp_path / "run.v1")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.v1.json", "run.v1.safetensors"]
    assert isinstance(optima.load(f"{tmp_path}/run.v1{ending}"), Rotate)


def test_folders_are_made(tmp_path: Path):
    optima.save(Rotate(std=1.0), tmp_path / "a" / "b" / "policy")
    assert isinstance(optima.load(tmp_path / "a" / "b" / "policy"), Rotate)


def test_loading_leaves_the_saved_policys_files_alone(tmp_path: Path):
    optima.save(trained("sequence"), tmp_path / "policy")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    draws(optima.load(tmp_path / "policy"), IMAGES)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


# ---- what can be trained can be saved --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(
            lambda: Rotate(std=1.0, mean=learn(5.0, prior=Exponential(1.0))),
            id="a prior on [0, ∞) of a real φ",
        ),
        pytest.param(
            lambda: Rotate(std=learn(5.0, prior=Pareto(1.0, 1.0))),
            id="a prior on [1, ∞)",
        ),
        pytest.param(
            lambda: TokenDropout(learn(0.1, support=constraints.half_open_interval(0.0, 0.5)), 1),
            id="a half-open support",
        ),
        pytest.param(lambda: Rotate(std=learn(5.0, prior=HalfNormal(3.0))), id="a prior on [0, ∞) of a positive φ"),
        pytest.param(
            lambda: Rotate(std=learn(torch.tensor(10.1, dtype=torch.float64))),
            id="float64",
        ),
    ],
)
def test_what_can_be_built_can_be_saved_and_comes_back(build: Callable[[], Augmenter], tmp_path: Path):
    augment = build()
    x = TOKENS if isinstance(augment, TokenDropout) else IMAGES
    assert same(draws(through_files(augment, tmp_path), x), draws(augment, x))


@pytest.mark.parametrize(
    "name",
    [
        "range",
        "tokens",
        "sequence",
        "learned mean",
    ],
)
def test_a_copy_can_be_saved(name: str, tmp_path: Path):
    twin = copy.deepcopy(trained(name))
    assert same(draws(through_files(twin, tmp_path), batch(name)), draws(twin, batch(name)))


# ---- never torn ------------------------------------------------------------------------------------------------


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def killed_at(monkeypatch: pytest.MonkeyPatch, rename: int) -> None:
    """The process dies at that rename: 1 is the first file's, 2 the second's."""
    made = iter(range(1, 100))
    replace = Path.replace

    def fail(self: Path, target: Any) -> Any:
        if next(made) == rename:
            raise OSError("killed")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", fail)


def old_and_new(folder: Path) -> tuple[Augmenter, Augmenter]:
    """Two policies of the same shape; only the support tells their φ apart."""
    old = TokenDropout(learn(0.1, support=constraints.interval(0.0, 0.5)), 1)
    optima.save(old, folder / "policy")
    return old, TokenDropout(learn(0.9), 1)


def test_a_crash_before_the_first_rename_leaves_the_old_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    _, new = old_and_new(tmp_path)
    before = files(tmp_path)
    killed_at(monkeypatch, rename=1)
    with pytest.raises(OSError, match="killed"):
        optima.save(new, tmp_path / "policy")
    assert files(tmp_path) == before


def test_a_crash_between_the_renames_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    old, new = old_and_new(tmp_path)
    killed_at(monkeypatch, rename=2)
    with pytest.raises(OSError, match="killed"):
        optima.save(new, tmp_path / "policy")
    assert sorted(files(tmp_path)) == ["policy.json", "policy.safetensors"], "no temporary file is left"
    try:
        loaded = optima.load(tmp_path / "policy")
    except ValueError:
        return  # refused: as good as the old policy intact
    means = [next(augment.named_phi())[1].summary().mean for augment in (old, new, loaded)]
    assert torch.equal(means[2], means[0]) or torch.equal(means[2], means[1])


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(
            lambda augment: augment.std.loc.data.fill_(math.nan),
            id="φ is NaN",
        ),
        pytest.param(lambda augment: setattr(augment, "arguments", {"std": 1.0, "hook": print}), id="an argument is"),
    ],
)
def test_a_policy_that_cannot_be_written_leaves_the_old_one(spoil: Callable[[Any], object], tmp_path: Path):
    optima.save(Rotate(std=learn(10.0)), tmp_path / "policy")
    before = files(tmp_path)
    augment = Rotate(std=learn(20.0))
    spoil(augment)
    with pytest.raises((ValueError, TypeError)):
        optima.save(augment, tmp_path / "policy")
    assert files(tmp_path) == before


def test_a_full_disk_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    _, new = old_and_new(tmp_path)
    before = files(tmp_path)

    def full(descriptor: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space"):
        optima.save(new, tmp_path / "policy")
    assert files(tmp_path) == before


# ---- nothing is executed ---------------------------------------------------------------------------------------


def test_reading_never_unpickles_imports_or_evaluates():
    for module in (policy, optima.distributions):  # pyright: ignore
        tree = ast.parse(inspect.getsource(module))
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        imported = {
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        forbidden = {"pickle", "eval", "exec", "compile", "__import__", "import_module", "importlib", "unsafe_load"}
        assert not (names | imported) & forbidden
    torch_load = {
        f"{node.func.value.id}.{node.func.attr}"
        for node in ast.walk(ast.parse(inspect.getsource(policy)))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name)
    }
    assert "torch.load" not in torch_load


def test_a_pickle_in_place_of_the_tensors_is_refused(tmp_path: Path):
    optima.save(Rotate(std=learn(10.0)), tmp_path / "policy")
    torch.save({"std.loc": torch.zeros(())}, tmp_path / "policy.safetensors")
    with pytest.raises(ValueError, match=r"policy.safetensors .* is damaged"):
        optima.load(tmp_path / "policy")


@pytest.mark.parametrize("name", ["Sequential.__init__", "optima.Rotate", "Augmentation", "Likelihood", "print"])
def test_only_listed_families_are_built(name: str, tmp_path: Path):
    optima.save(Rotate(std=1.0), tmp_path / "policy")
    document = json.loads((tmp_path / "policy.json").read_text())
    document["augment"]["type"] = name
    (tmp_path / "policy.json").write_text(json.dumps(document))
    with pytest.raises(ValueError, match=r"which is not one of .*families="):
        optima.load(tmp_path / "policy")


def test_a_family_of_ones_own_must_be_brought_along(tmp_path: Path):
    optima.save(Gain(learn(0.3)), tmp_path / "policy")
    with pytest.raises(ValueError, match=r"'Gain', which is not one of .*Rotate.*load\(path, families="):
        optima.load(tmp_path / "policy")
    assert isinstance(optima.load(tmp_path / "policy", families=[Gain]), Gain)
