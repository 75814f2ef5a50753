"""optima learns how strongly to augment, jointly with the model, in one training run."""

from optima import metrics, sampling
from optima.augment import (
    Augmentation,
    GaussianNoise,
    MixedTarget,
    Mixup,
    Rotate,
    Sequential,
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
    "Augmentation",
    "BayesianLinear",
    "Bernoulli",
    "Categorical",
    "ElboTerms",
    "Gaussian",
    "GaussianNoise",
    "Loss",
    "MixedTarget",
    "Mixup",
    "Rotate",
    "Sequential",
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
