r"""Where randomness comes from: a named source of noise, handed to the samplers as an argument.

Two sources exist. `Stream` is counter-based: the n-th draw under a name is a function of (seed, rank, worker, name,
n) and of nothing else, so ranks differ, adding an augmentation does not shift its neighbours' draws, and a checkpoint
needs two integers. `GeneratorNoise` consumes a `torch.Generator` the caller brought. Neither touches torch's global
generator.

Draws of a stream go through a custom operator, because a `torch.Generator` cannot be traced by `torch.compile`.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakValueDictionary

import torch
from torch import Tensor

_keys = itertools.count()
_live: WeakValueDictionary[int, Stream] = WeakValueDictionary()


class Noise(Protocol):
    """A source of parameter-free noise."""

    def named(self, name: str) -> Noise:
        """The source for one named draw."""
        ...

    def normal(self, shape: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Standard normal noise."""
        ...

    def uniform(self, shape: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Uniform noise on [0, 1)."""
        ...

    def gamma(self, concentration: Tensor) -> Tensor:
        """Gamma(concentration, 1) draws, detached from the concentration."""
        ...


class Stream:
    """A seed and one counter per name.

    Args:
        seed: taken from torch's global generator when absent, so `torch.manual_seed` governs it.
        counts: how many draws each name has already made.
    """

    def __init__(self, seed: int | None = None, counts: Mapping[str, int] | None = None):
        self.seed = int(torch.randint(2**62, ())) if seed is None else seed
        self.counts: dict[str, int] = dict(counts or {})
        self.key = next(_keys)
        _live[self.key] = self

    def generator(self, name: str, device: torch.device) -> torch.Generator:
        """The generator of the next draw under `name`; advances that name's counter."""
        count = self.counts.get(name, 0)
        self.counts[name] = count + 1
        identity = f"{self.seed}/{_rank()}/{_worker()}/{name}/{count}".encode()
        seed = int.from_bytes(hashlib.blake2b(identity, digest_size=8).digest(), "little") >> 1
        return torch.Generator(device).manual_seed(seed)

    def noise(self, name: str = "") -> StreamNoise:
        """This stream as a `Noise`."""
        return StreamNoise(self.key, name, self)

    def state(self) -> Tensor:
        """Seed and counters as a tensor of bytes, which every kind of checkpoint can hold."""
        text = json.dumps({"seed": self.seed, "counts": self.counts}, sort_keys=True)
        return torch.tensor(list(text.encode()), dtype=torch.uint8)

    @classmethod
    def from_state(cls, state: Tensor) -> Stream:
        """The stream that `state` described."""
        return cls(**json.loads(bytes(state.tolist())))

    def __deepcopy__(self, memo: object) -> Stream:
        return Stream(self.seed, self.counts)

    def __reduce__(self) -> tuple[type[Stream], tuple[int, dict[str, int]]]:
        return Stream, (self.seed, self.counts)


def _rank() -> int:
    distributed = torch.distributed
    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0


def _worker() -> str:
    """Which worker of a data loader this is, and its seed: the loader makes new workers for an epoch, which start from
    a copy of the parent's counters, so that without the epoch's seed they would repeat the epoch before."""
    info = torch.utils.data.get_worker_info()
    return "0" if info is None else f"{info.id + 1}:{info.seed}"


# Tagged as random so that autograd's partitioner saves the values instead of drawing them again in the backward pass.
_RANDOM = (torch.Tag.nondeterministic_seeded,)


@torch.library.custom_op("optima::stream_noise", mutates_args=(), tags=_RANDOM)
def _stream_noise(
    key: int, name: str, gaussian: bool, shape: Sequence[int], dtype: torch.dtype, device: torch.device
) -> Tensor:
    draw = torch.randn if gaussian else torch.rand
    return draw(shape, dtype=dtype, device=device, generator=_live[key].generator(name, device))


@_stream_noise.register_fake
def _(key, name, gaussian, shape, dtype, device):  # pyright: ignore
    return torch.empty(shape, dtype=dtype, device=device)


@torch.library.custom_op("optima::stream_gamma", mutates_args=(), tags=_RANDOM)
def _stream_gamma(key: int, name: str, concentration: Tensor) -> Tensor:
    return torch.ops.aten._standard_gamma(concentration, generator=_live[key].generator(name, concentration.device))


@_stream_gamma.register_fake
def _(key, name, concentration):  # pyright: ignore
    return torch.empty_like(concentration)


@dataclass(frozen=True)
class StreamNoise:
    """Noise of a `Stream`, which is drawn by its key: a key is a constant to `torch.compile`, an object is not."""

    key: int
    name: str
    owner: Stream  # keeps the stream alive

    def named(self, name: str) -> StreamNoise:
        return StreamNoise(self.key, f"{self.name}.{name}" if self.name else name, self.owner)

    def normal(self, shape: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return _stream_noise(self.key, self.name, True, list(shape), dtype, device)

    def uniform(self, shape: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return _stream_noise(self.key, self.name, False, list(shape), dtype, device)

    def gamma(self, concentration: Tensor) -> Tensor:
        return _stream_gamma(self.key, self.name, concentration.detach().contiguous())


@dataclass(frozen=True)
class GeneratorNoise:
    """Noise of one generator, consumed in the order of the draws; names do not matter. None is torch's global one."""

    generator: torch.Generator | None

    def named(self, name: str) -> GeneratorNoise:
        return self

    def normal(self, shape: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.randn(tuple(shape), dtype=dtype, device=device, generator=self.generator)

    def uniform(self, shape: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.rand(tuple(shape), dtype=dtype, device=device, generator=self.generator)

    def gamma(self, concentration: Tensor) -> Tensor:
        return torch.ops.aten._standard_gamma(concentration.detach(), generator=self.generator)
