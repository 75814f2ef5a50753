r"""A learned policy as two files: `NAME.json` for people and machines, `NAME.safetensors` for the exact numbers.

The JSON holds which augmentations, with which arguments, and the summary; the tensors hold q(φ), the gradient record
and the random stream, so that a loaded policy continues bit for bit. Reading looks every name up in a closed list and
never imports or unpickles.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch.distributions import Distribution

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
from optima.augment.summary import DIVERGED
from optima.augment.text import TokenDropout
from optima.distributions import (
    constraint_from_json,
    constraint_to_json,
    distribution_from_json,
    distribution_to_json,
    readable,
)
from optima.files import write_whole
from optima.posterior import FixedPhi, Learn, LearnedPhi, Phi, PriorPhi
from optima.sampling import ESTIMATORS, Estimator

SCHEMA = 1

_FAMILIES: dict[str, type[Augmentation]] = {
    family.__name__: family
    for family in (
        *(Affine, CropResize, Flip, Rotate, Scale, Shear, Translate),
        *(Brightness, Contrast, Gamma, Hue, Saturation),
        *(Blur, Erase),
        *(AugMix,),
        *(CutMix, Mixup),
        *(GaussianNoise, Shift),
        TokenDropout,
    )
}

_COMPOSITES: dict[str, type[Augmenter]] = {kind.__name__: kind for kind in (Maybe, OneOf, Sequential)}

_ESTIMATOR_TYPES = tuple(type(estimator) for estimator in ESTIMATORS.values())


def save(augment: Augmenter, path: str | os.PathLike[str]) -> None:
    """Write `path`.json and `path`.safetensors.

    Each is written aside and renamed, and the JSON names the tensors' digest: after a crash between the two, `load`
    refuses the pair instead of mixing an old policy with a new one.

    Args:
        augment: the policy.
        path: the files' common name, not a folder; an ending .json or .safetensors is ignored.
    """
    stem = _stem(path)
    _check_place(path, stem)
    document = {
        "schema": SCHEMA,
        "kind": "optima policy",
        "augment": _describe(augment),
        "summary": [row._asdict() for row in augment.summary().rows],
    }
    if diverged := [row["name"] for row in document["summary"] if row["verdict"] == DIVERGED]:
        raise ValueError(f"cannot save {', '.join(diverged)}: not a number any more, so the training has diverged")
    stem.parent.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in augment.state_dict().items()}
    weights = to_bytes(tensors)
    document["weights_sha256"] = hashlib.sha256(weights).hexdigest()
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_whole(stem.with_name(stem.name + ".safetensors"), weights)
    write_whole(stem.with_name(stem.name + ".json"), text)


def load(path: str | os.PathLike[str], *, families: Sequence[type[Augmentation]] = ()) -> Augmenter:
    """Read what `save` wrote.

    Args:
        path: the files' common name.
        families: your own `Augmentation` classes that the policy may name.
    """
    stem = _stem(path)
    if isinstance(families, type):
        raise TypeError(f"families must be a list of classes, as in families=[{families.__name__}]")
    document = _read(stem.with_name(stem.name + ".json"))
    known = {**_FAMILIES, **{family.__name__: family for family in families}}
    augment = _built(document, known, stem)
    weights = stem.with_name(stem.name + ".safetensors")
    if not weights.exists():
        raise FileNotFoundError(f"{weights} is missing; a policy is a .json and a .safetensors of the same name")
    content = weights.read_bytes()
    if hashlib.sha256(content).hexdigest() != document.get("weights_sha256"):
        raise ValueError(f"{weights} does not belong to {stem.name}.json, or is damaged; save the policy again")
    try:
        tensors = from_bytes(content)
        if any(tensor.dtype == torch.float64 for name, tensor in tensors.items() if name.endswith(".loc")):
            augment.double()
        augment.load_state_dict(tensors)
    except (RuntimeError, SafetensorError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{weights} does not belong to {stem.name}.json, or is damaged: {reason}") from error
    return augment


# ---- description -------------------------------------------------------------------------------------------------


def _describe(augment: Augmenter) -> dict[str, Any]:
    if isinstance(augment, Augmentation):
        return {"type": type(augment).__name__, "arguments": _arguments(augment)}
    if not isinstance(augment, Sequential | OneOf | Maybe):
        raise TypeError(f"cannot save a {type(augment).__name__}")
    described = {"type": type(augment).__name__, "steps": [_describe(step) for _, step in augment.steps()]}
    return described if isinstance(augment, Sequential) else {**described, "arguments": _arguments(augment.choice)}


def _arguments(leaf: Augmentation) -> dict[str, Any]:
    given = {name: value for name, value in leaf.arguments.items() if value is not None}
    accepted = inspect.signature(type(leaf)).parameters
    # a strength that the constructor made up itself may have been learned or frozen since
    given |= {name: None for name in leaf.domains if name not in given and name in accepted}
    names = [name for name in accepted if name in given] + [name for name in given if name not in accepted]
    return {name: _value(leaf, name, given[name]) for name in names}


def _value(augment: Augmentation, name: str, value: Any) -> Any:
    if name in augment.domains:
        return _phi(getattr(augment, name))
    if isinstance(value, _ESTIMATOR_TYPES):
        return _estimator(value)
    if isinstance(value, Distribution):
        return {"prior": distribution_to_json(value)}
    if isinstance(value, Mapping):
        return {"priors": {key: distribution_to_json(prior) for key, prior in value.items()}}
    if isinstance(value, tuple | list):
        return list(value)
    if isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"cannot save {type(augment).__name__}({name}=…) of type {type(value).__name__}")


def _phi(phi: Phi) -> Any:
    if isinstance(phi, FixedPhi):
        return readable(phi.value)
    if isinstance(phi, LearnedPhi):
        prior = None if phi.prior is None else distribution_to_json(phi.prior)
        return {
            "learn": readable(phi.start),
            "posterior": phi.posterior,
            "scale": phi.start_scale,
            "support": constraint_to_json(phi.support),
            "prior": prior,
        }
    if isinstance(phi, PriorPhi):
        raise TypeError("a policy at its prior is not saved; save the learned one and call load(path).prior()")
    raise TypeError(f"cannot save a {type(phi).__name__}")


def _estimator(estimator: Estimator) -> dict[str, Any]:
    name = next(key for key, value in ESTIMATORS.items() if type(value) is type(estimator))
    return {"estimator": name, **vars(estimator)}


# ---- construction ------------------------------------------------------------------------------------------------


def _built(document: dict[str, Any], known: dict[str, type[Augmentation]], stem: Path) -> Augmenter:
    try:
        return _build(document["augment"], known)
    except KeyError as error:
        raise ValueError(f"{stem}.json is damaged: it lacks {error}") from error
    except AttributeError as error:
        raise ValueError(f"{stem}.json is damaged: {error}") from error
    except (TypeError, ValueError) as error:
        raise type(error)(f"{stem}.json: {error}") from error


def _build(data: Any, known: dict[str, type[Augmentation]]) -> Augmenter:
    if not isinstance(data, dict):
        raise AttributeError(f"an augmentation is described by an object, got {type(data).__name__}")
    if data["type"] in _COMPOSITES:
        options = {name: _argument(value) for name, value in data.get("arguments", {}).items()}
        return _COMPOSITES[data["type"]](*(_build(step, known) for step in data["steps"]), **options)
    if data["type"] not in known:
        raise ValueError(
            f"the policy names the augmentation {data['type']!r}, which is not one of {sorted(known)};"
            " if it is your own, pass load(path, families=[…])"
        )
    return known[data["type"]](**{name: _argument(value) for name, value in data["arguments"].items()})


def _argument(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "learn" in value:
        prior = None if value["prior"] is None else distribution_from_json(value["prior"])
        return Learn(value["learn"], prior, constraint_from_json(value["support"]), value["posterior"], value["scale"])
    if "estimator" in value:
        settings = {key: setting for key, setting in value.items() if key != "estimator"}
        if value["estimator"] not in ESTIMATORS:
            raise ValueError(f"unknown estimator {value['estimator']!r} in the policy")
        return type(ESTIMATORS[value["estimator"]])(**settings)
    if "prior" in value:
        return distribution_from_json(value["prior"])
    if "priors" in value:
        return {key: distribution_from_json(prior) for key, prior in value["priors"].items()}
    raise ValueError(f"unknown argument in the policy: {value}")


# ---- files -------------------------------------------------------------------------------------------------------


def _stem(path: str | os.PathLike[str]) -> Path:
    given, path = os.fspath(path), Path(path)
    if path.name in ("", ".."):
        raise ValueError(f"path must end in a name for the policy's two files, as in runs/policy, got {given!r}")
    return path.with_suffix("") if path.suffix in (".json", ".safetensors") else path


def _check_place(path: str | os.PathLike[str], stem: Path) -> None:
    """Raise for a folder, beside which the files would land, or in the place of a file."""
    ends = (os.sep, os.altsep or os.sep)
    if Path(path).is_dir() or os.fspath(path).endswith(ends):
        raise IsADirectoryError(f"{path} is a folder; name the policy's two files in it, as in {stem / 'policy'}")
    for suffix in (".json", ".safetensors"):
        if (file := stem.with_name(stem.name + suffix)).is_dir():
            raise IsADirectoryError(f"{file} is a folder; choose another name for the policy's two files")


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        folder = path.with_suffix("")
        inside = f"; {folder} is a folder: name the file in it, as in {folder / 'policy'}" if folder.is_dir() else ""
        raise FileNotFoundError(f"no policy at {path}{inside}")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(document, dict) or document.get("kind") != "optima policy":
        raise ValueError(f"{path} is not a policy written by optima.save")
    if "schema" not in document:
        raise ValueError(f"{path} is damaged: it lacks 'schema'")
    if document["schema"] != SCHEMA:
        raise ValueError(
            f"{path} has schema {document['schema']}, this version reads {SCHEMA}; upgrade optima to read it"
        )
    return document
