"""The objective: the augmented ELBO as arithmetic, the estimators of its gradient, and the loss that joins them."""

from optima.objective.elbo import ElboTerms, elbo, log_marginal, marginalization_advantage
from optima.objective.loss import ELBO, Loss

__all__ = ["ELBO", "ElboTerms", "Loss", "elbo", "log_marginal", "marginalization_advantage"]
