"""q(θ): Bayesian layers, their KL, and prediction."""

from optima.bayes.layers import BayesianLinear, bayesian_last_layer, kl_theta
from optima.bayes.predict import predict

__all__ = ["BayesianLinear", "bayesian_last_layer", "kl_theta", "predict"]
