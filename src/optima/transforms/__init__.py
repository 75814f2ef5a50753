"""T_γ: pure functions of (x, γ), batched over examples. γ = identity changes nothing."""

from optima.transforms.geometry import rotate, scale, shear, translate
from optima.transforms.mixing import mix
from optima.transforms.signal import add_noise, shift
from optima.transforms.tokens import mask_tokens

__all__ = ["add_noise", "mask_tokens", "mix", "rotate", "scale", "shear", "shift", "translate"]
