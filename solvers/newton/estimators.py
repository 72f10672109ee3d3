"""Sub-sampled Newton with scikit-learn's interface: ``fit``, ``predict``, trailing-underscore attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from optikit.losses import LOSSES
from optikit.validation import check_choice
from solvers.newton.glm import GLM
from solvers.newton.subsampled import SubsampledNewton

#: Families of the regressor: the losses of generalised linear models.
FAMILIES = ("least_squares", "poisson", "gamma", "negative_binomial", "huber")


class _NewtonEstimator(BaseEstimator):
    """What the classifier and the regressor share."""

    def __init__(
        self,
        alpha: float = 1e-4,
        fit_intercept: bool = True,
        m: int | None = None,
        sketch: str = "less_uniform",
        debias: str = "auto",
        tol: float = 1e-8,
        max_iter: int = 50,
        random_state: Any = 0,
    ) -> None:
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.m = m
        self.sketch = sketch
        self.debias = debias
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    def _solve(self, X: Any, y: np.ndarray, loss: Any, sample_weight: Any) -> None:
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, X)
        glm = GLM(X, y, loss, l2=self.alpha, intercept=self.fit_intercept, sample_weight=weight)
        seed = self.random_state
        if not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(np.iinfo(np.int32).max)
        solver = SubsampledNewton(m=self.m, sketch=self.sketch, debias=self.debias, seed=int(seed))
        self.result_ = solver.solve(glm, max_rounds=None, max_iterations=self.max_iter, tol=self.tol)
        b = np.asarray(self.result_.x)
        self.coef_ = b[: glm.n_features]
        self.intercept_: Any = float(b[-1]) if self.fit_intercept else 0.0
        self.n_iter_ = self.result_.iterations
        self.decrement_ = float(self.result_.state.decrement)
        self.gap_estimate_ = 0.5 * float(self.result_.state.decrement_upper)

    def _scores(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", reset=False, dtype=[np.float64, np.float32])
        return np.asarray(X @ np.ravel(self.coef_)) + np.ravel(self.intercept_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class SubsampledNewtonClassifier(ClassifierMixin, _NewtonEstimator):
    """Binary logistic regression by debiased sub-sampled Newton.

    Minimises ``(1/n) sum log(1 + exp(-y z)) + (alpha/2) ||coef||^2``; the intercept is not penalised.

    Parameters
    ----------
    alpha : float, default 1e-4
        Ridge weight, >= 0 (scikit-learn's ``C`` is ``1 / (n alpha)``).
    fit_intercept : bool, default True
    m : int or None
        Rows of the sketch; None: ``min(10 d, n/2)``.
    sketch, debias : str
        As in `solvers.newton.subsampled.SubsampledNewton`.
    tol : float, default 1e-8
        Tolerance on half the Newton decrement's upper estimate, relative to ``max(1, |F|)``.
    max_iter : int, default 50
    random_state : int, RandomState or None, default 0

    Attributes
    ----------
    classes_, coef_, intercept_, n_iter_
    decrement_, gap_estimate_ : float
        Squared Newton decrement of the last step, and half its upper estimate.
    result_ : Result
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> SubsampledNewtonClassifier:
        """Fit to X (n, d), dense or CSR, and two classes y."""
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32])
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if self.classes_.size > 2:
            raise ValueError(
                f"Only binary classification is supported. The type of the target is multiclass: "
                f"{self.classes_.size} classes."
            )
        if self.classes_.size < 2:
            raise ValueError(f"two classes are needed, got 1 class: {self.classes_[0]!r}")
        self._solve(X, 2.0 * codes - 1.0, "logistic", sample_weight)
        self.coef_ = self.coef_[None, :]
        self.intercept_ = np.atleast_1d(self.intercept_)
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores, positive for ``classes_[1]``."""
        return self._scores(X)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the two classes, (n, 2)."""
        from scipy.special import expit

        p = expit(self.decision_function(X))
        return np.column_stack([1.0 - p, p])

    def predict(self, X: Any) -> np.ndarray:
        """Classes."""
        positive = self.decision_function(X) > 0
        return self.classes_[positive.astype(int)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


class SubsampledNewtonRegressor(RegressorMixin, _NewtonEstimator):
    """Generalised linear regression by debiased sub-sampled Newton.

    Parameters
    ----------
    family : str, default "least_squares"
        "least_squares", "huber", "poisson", "gamma" or "negative_binomial"; the last three have the log link.
    alpha, fit_intercept, m, sketch, debias, tol, max_iter, random_state
        As for the classifier.
    """

    def __init__(
        self,
        family: str = "least_squares",
        alpha: float = 1e-4,
        fit_intercept: bool = True,
        m: int | None = None,
        sketch: str = "less_uniform",
        debias: str = "auto",
        tol: float = 1e-8,
        max_iter: int = 50,
        random_state: Any = 0,
    ) -> None:
        super().__init__(alpha, fit_intercept, m, sketch, debias, tol, max_iter, random_state)
        self.family = family

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> SubsampledNewtonRegressor:
        """Fit to X (n, d), dense or CSR, and targets y."""
        check_choice(self.family, "family", FAMILIES)
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], y_numeric=True)
        self._solve(X, np.asarray(y, dtype=np.float64), LOSSES[self.family](), sample_weight)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Mean of the target."""
        z = self._scores(X)
        return z if self.family in ("least_squares", "huber") else np.exp(np.minimum(z, 700.0))
