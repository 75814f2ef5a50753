"""optima learns how strongly to augment, jointly with the model, in one training run."""

from optima import metrics, sampling
from optima.augment import (
    Affine,
    Augmentation,
    CropResize,
    CutMix,
    Flip,
    GaussianNoise,
    Maybe,
    MixedTarget,
    Mixup,
    OneOf,
    Rotate,
    Scale,
    Sequential,
    Shear,
    Shift,
    TokenDropout,
    Translate,
    View,
)
from optima.augment.policy import load, save
from optima.bayes import BayesianLinear, bayesian_last_layer, kl_theta, predict
from optima.likelihoods import Bernoulli, Categorical, Gaussian
from optima.objective import ELBO, ElboTerms, Loss, elbo, log_marginal, marginalization_advantage
from optima.posterior import learn
from optima.version import __version__

__all__ = [
    "ELBO",
    "Affine",
    "Augmentation",
    "BayesianLinear",
    "Bernoulli",
    "Categorical",
    "CropResize",
    "CutMix",
    "ElboTerms",
    "Flip",
    "Gaussian",
    "GaussianNoise",
    "Loss",
    "Maybe",
    "MixedTarget",
    "Mixup",
    "OneOf",
    "Rotate",
    "Scale",
    "Sequential",
    "Shear",
    "Shift",
    "TokenDropout",
    "Translate",
    "View",
    "__version__",
    "bayesian_last_layer",
    "elbo",
    "kl_theta",
    "learn",
    "load",
    "log_marginal",
    "marginalization_advantage",
    "metrics",
    "predict",
    "sampling",
    "save",
]
