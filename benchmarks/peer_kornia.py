"""kornia.augmentation: parameters drawn per example, and ranges that may be parameters."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import strengths as s
from benchmarks.families import Batch, Unmeasurable
from benchmarks.timing import Action

Ranges = dict[str, Any]
Build = Callable[[Any, Ranges], Any]

COLOUR = (1 - s.COLOUR, 1 + s.COLOUR)
ANGLES = (-s.ANGLE, s.ANGLE)
SLANTS = (-s.SLANT, s.SLANT, -s.SLANT, s.SLANT)
SHIFTS, HUES = (-s.SHIFT, s.SHIFT), (-s.HUE, s.HUE)
SCALES = (1 / (1 + s.LOG_SCALE), 1 + s.LOG_SCALE)
FOUR_COLOURS = {"brightness": COLOUR, "contrast": COLOUR, "saturation": COLOUR, "hue": HUES}
WHOLE_AFFINE = {"degrees": ANGLES, "translate": (s.SHIFT, s.SHIFT), "scale": SCALES, "shear": SLANTS}


def _crop(k: Any, r: Ranges, size: tuple[int, int]) -> Any:
    return k.RandomResizedCrop(size, ratio=(1.0, 1.0), cropping_mode="resample", **r)


# what may be learned, and the class it is given to; everything else is a plain number
BUILDS: dict[str, tuple[Ranges, Build]] = {
    "rotate": ({"degrees": ANGLES}, lambda k, r: k.RandomRotation(**r, p=1.0)),
    "translate": ({"translate_x": SHIFTS, "translate_y": SHIFTS}, lambda k, r: k.RandomTranslate(**r, p=1.0)),
    "scale": ({"scale": SCALES}, lambda k, r: k.RandomAffine(0.0, **r, p=1.0)),
    "shear": ({"shear": SLANTS}, lambda k, r: k.RandomShear(**r, p=1.0)),
    "four_warps": (WHOLE_AFFINE, lambda k, r: k.RandomAffine(**r, p=1.0)),
    "flip": ({}, lambda k, r: k.RandomHorizontalFlip(p=0.5)),
    "brightness": ({"brightness": COLOUR}, lambda k, r: k.RandomBrightness(**r)),
    "contrast": ({"contrast": COLOUR}, lambda k, r: k.RandomContrast(**r)),
    "saturation": ({"saturation": COLOUR}, lambda k, r: k.RandomSaturation(**r)),
    "hue": ({"hue": HUES}, lambda k, r: k.RandomHue(**r)),
    "gamma": ({"gamma": (1 - s.GAMMA, 1 + s.GAMMA)}, lambda k, r: k.RandomGamma(**r)),
    "noise": ({"std": s.NOISE}, lambda k, r: k.RandomGaussianNoise(0.0, **r, p=1.0)),
    "blur": ({"sigma": (0.1, s.BLUR)}, lambda k, r: k.RandomGaussianBlur(s.BLUR_KERNEL, **r, p=1.0)),
    "erase": ({"scale": s.ERASED}, lambda k, r: k.RandomErasing(**r, p=1.0)),
}
MIXERS: dict[str, tuple[Ranges, Build]] = {
    "mixup": ({"lambda_val": (0.0, 1.0)}, lambda k, r: k.RandomMixUpV2(**r, data_keys=["input", "class"])),
    "cutmix": ({"beta": s.CONCENTRATION}, lambda k, r: k.RandomCutMixV2(**r, data_keys=["input", "class"])),
}
COLOURS = {"kornia_jiggle": "ColorJiggle", "kornia_jitter": "ColorJitter"}


def forwards(family: str, on: Batch) -> dict[str, Action]:
    """x' under ranges that are plain numbers, by contestant."""
    return {name: functools.partial(_call, build(ranges), family, on) for name, (ranges, build) in _all(family, on)}


def backwards(family: str, on: Batch) -> dict[str, Action]:
    """The same with ranges that are parameters, and back to them; Unmeasurable where no gradient arrives."""
    found: dict[str, Action] = {}
    for name, (ranges, build) in _all(family, on):
        learned = {key: nn.Parameter(torch.tensor(value)) for key, value in ranges.items()}
        step = functools.partial(_step, build(learned), family, on, list(learned.values()))
        _check(family, learned, step)
        found[f"{name}_backward"] = step
    return found


def _all(family: str, on: Batch) -> list[tuple[str, tuple[Ranges, Callable[[Ranges], Any]]]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from kornia import augmentation
    size = (on.x.shape[-2], on.x.shape[-1])
    known = {**BUILDS, **MIXERS}
    if family == "crop_resize":
        area = {"scale": (0.5, 1.0)}
        return [("kornia", (area, lambda r: _crop(augmentation, r, size)))]
    if family == "colour":
        return [
            (name, (FOUR_COLOURS, functools.partial(_made, getattr(augmentation, kind))))
            for name, kind in COLOURS.items()
        ]
    if family not in known:
        raise Unmeasurable("it has none of this kind")
    ranges, build = known[family]
    return [("kornia", (ranges, functools.partial(build, augmentation)))]


def _made(kind: Any, ranges: Ranges) -> Any:
    return kind(**ranges)


def _call(augmentation: Any, family: str, on: Batch) -> Tensor:
    return augmentation(on.x, on.y)[0] if family in MIXERS else augmentation(on.x)


def _step(augmentation: Any, family: str, on: Batch, learned: list[nn.Parameter]) -> Tensor:
    for parameter in learned:
        parameter.grad = None
    if family not in MIXERS:
        x, labels = augmentation(on.x), None
    else:
        x, labels = augmentation(on.x, on.y)
    loss = (x * on.weight).sum(dtype=torch.float32)
    if labels is not None:  # two labels and the share λ
        loss = loss + (labels[..., 2] * on.label_weight[:, 0]).sum()
    loss.backward()
    return x.detach()


def _check(family: str, learned: dict[str, nn.Parameter], step: Action) -> None:
    if not learned:
        raise Unmeasurable(f"kornia's {family} has no range")
    try:
        step()
    except Exception as error:
        raise Unmeasurable(f"kornia's range of {family} cannot be a parameter") from error
    dead = [key for key, p in learned.items() if p.grad is None or not bool(p.grad.any())]
    if dead:
        raise Unmeasurable(f"no gradient reaches kornia's {', '.join(dead)}")
