r"""Operations on the values of an image in [0, 1], each with its own strength per image, nothing moved.

Smooth, clipped to [0, 1], x' = f·x + (1 − f)·d with a factor f and a duller image d:

    colour        d is the grey image
    contrast      d is the mean grey, one number per image
    brightness    d is black
    sharpness     d is blurred by the kernel [1 1 1; 1 5 1; 1 1 1] / 13, the pixels on the border kept

and `autocontrast`, which stretches each channel over [0, 1]. In 256 values, as image libraries do them and without a
gradient towards their strength: `posterize`, `solarize`, `equalize`.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from optima.transforms.signal import per_example

Images = Float[Tensor, "B C H W"]
PerImage = Float[Tensor, " B"]

_GREY = (0.299, 0.587, 0.114)  # ITU-R BT.601, the weights of red, green and blue
_LAST = 255


# ---- smooth ------------------------------------------------------------------------------------------------------


def colour(image: Images, factor: PerImage) -> Images:
    """Away from grey or towards it; an image of one channel is grey already."""
    if image.shape[1] == 1:
        return image
    return torch.lerp(_grey(image), image, per_example(factor, image)).clamp_(0.0, 1.0)


def contrast(image: Images, factor: PerImage) -> Images:
    """Away from the image's mean grey or towards it."""
    mean = _grey(image.mean((2, 3), keepdim=True))
    return torch.lerp(mean, image, per_example(factor, image)).clamp_(0.0, 1.0)


def brightness(image: Images, factor: PerImage) -> Images:
    """Away from black or towards it."""
    return (image * per_example(factor, image)).clamp_(0.0, 1.0)


def sharpness(image: Images, factor: PerImage) -> Images:
    """Away from the blurred image or towards it."""
    if min(image.shape[2:]) < 3:
        return image  # all border
    inner = image[..., 1:-1, 1:-1]
    across = (image[..., :-2] + image[..., 1:-1]).add_(image[..., 2:])
    around = (across[..., :-2, :] + across[..., 1:-1, :]).add_(across[..., 2:, :])
    blurred = around.add_(inner, alpha=4.0).div_(13.0)
    sharper = image.clone()
    sharper[..., 1:-1, 1:-1] = torch.lerp(blurred, inner, per_example(factor, image)).clamp_(0.0, 1.0)
    return sharper


def autocontrast(image: Images) -> Images:
    """Each channel stretched so that its darkest pixel becomes 0 and its lightest 1.

    A channel that spans less than one of 256 values is stretched less, down to not at all: rounding errors of a flat
    channel are not a picture.
    """
    low, high = image.amin((2, 3), keepdim=True), image.amax((2, 3), keepdim=True)
    span = high - low
    share = (span * _LAST).clamp(max=1.0)
    gain = share / span.clamp_min(torch.finfo(image.dtype).tiny)
    return (image * (1.0 - share + gain) - gain * low).clamp_(0.0, 1.0)


def _grey(image: Tensor) -> Tensor:
    if image.shape[1] == 1:
        return image
    red, green, blue = image.split(1, 1)
    return (_GREY[0] * red).add_(green, alpha=_GREY[1]).add_(blue, alpha=_GREY[2])


# ---- in 256 values -----------------------------------------------------------------------------------------------


def posterize(image: Images, bits: PerImage) -> Images:
    """The highest `bits` of each value's eight, the others 0."""
    step = per_example(2.0 ** (8.0 - bits.detach()), image)
    return _eight_bit(image).div_(step).floor_().mul_(step).div_(_LAST)


def solarize(image: Images, threshold: PerImage) -> Images:
    """Values at or above the threshold inverted; a threshold above 1 changes nothing."""
    pixels = image.detach()
    inverted = torch.ge(pixels, per_example(threshold.detach(), image), out=torch.empty_like(pixels))
    return torch.lerp(image, 1.0 - image, inverted)


def equalize(image: Images) -> Images:
    """Each channel's values spread by its histogram until all are about equally frequent.

    With n_v pixels of value v and step = ⌊(Σ n − n_last) / 255⌋, value v becomes ⌊(⌊step/2⌋ + Σ_{u<v} n_u) / step⌋; a
    channel with a step of 0 is left alone.
    """
    channels = image.shape[0] * image.shape[1]
    first = torch.arange(channels, dtype=torch.int32, device=image.device).unsqueeze(1) * 256
    value = _eight_bit(image).reshape(channels, -1).int().add_(first).flatten()
    table = _equalizing(torch.bincount(value, minlength=channels * 256).view(channels, 256))
    return (table.to(image.dtype) / _LAST).flatten().index_select(0, value).view(image.shape)


def _equalizing(count: Tensor) -> Tensor:
    """What each of 256 values becomes, from histograms (channels, 256)."""
    values = torch.arange(256, device=count.device)
    below = count.cumsum(1) - count
    last = (values * (count > 0)).amax(1, keepdim=True)
    step = below.gather(1, last) // _LAST  # the pixels of every value but the last
    spread = (step // 2 + below) // step.clamp(min=1)
    return torch.where(step > 0, spread.clamp(max=_LAST), values)


def _eight_bit(image: Tensor) -> Tensor:
    """Values in whole numbers from 0 to 255, a new tensor."""
    return image.detach().mul(_LAST).round_().clamp_(0.0, _LAST)
