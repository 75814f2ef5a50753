"""p(γ | φ) bound to a T_γ: one small module per family, and their composition."""

from optima.augment.augmenter import Augmenter
from optima.augment.base import Augmentation
from optima.augment.compose import Sequential
from optima.augment.geometric import Rotate, Translate
from optima.augment.mixing import Mixup
from optima.augment.signal import GaussianNoise, Shift
from optima.augment.text import TokenDropout
from optima.augment.view import MixedTarget, View

__all__ = [
    "Augmentation",
    "Augmenter",
    "GaussianNoise",
    "MixedTarget",
    "Mixup",
    "Rotate",
    "Sequential",
    "Shift",
    "TokenDropout",
    "Translate",
    "View",
]
