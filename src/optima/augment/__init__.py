"""p(γ | φ) bound to a T_γ: one small module per family, and their composition."""

from optima.augment.affine import Affine
from optima.augment.augmenter import Augmenter
from optima.augment.augmix import AugMix
from optima.augment.base import Augmentation
from optima.augment.choice import Maybe, OneOf
from optima.augment.colour import Brightness, Contrast, Gamma, Hue, Saturation
from optima.augment.compose import Sequential
from optima.augment.geometric import CropResize, Flip, Rotate, Scale, Shear, Translate
from optima.augment.local import Blur, Erase
from optima.augment.mixing import CutMix, Mixup
from optima.augment.signal import GaussianNoise, Shift
from optima.augment.text import TokenDropout
from optima.augment.view import MixedTarget, View

__all__ = [
    "Affine",
    "AugMix",
    "Augmentation",
    "Augmenter",
    "Blur",
    "Brightness",
    "Contrast",
    "CropResize",
    "CutMix",
    "Erase",
    "Flip",
    "Gamma",
    "GaussianNoise",
    "Hue",
    "Maybe",
    "MixedTarget",
    "Mixup",
    "OneOf",
    "Rotate",
    "Saturation",
    "Scale",
    "Sequential",
    "Shear",
    "Shift",
    "TokenDropout",
    "Translate",
    "View",
]
