r"""What a row-stochastic matrix converges to, and how fast: Perron vector, contraction, skewness, returns.

For a row-stochastic A that is irreducible and has positive diagonal entries, :math:`A^k \to 1 \pi^T` with

.. math::

    \|A^k - 1 \pi^T\|_2 \le \sqrt{\kappa_A}\, \beta_A^k, \qquad
    \beta_A = \| D^{1/2} (A - 1 \pi^T) D^{-1/2} \|_2, \quad D = \mathrm{diag}(\pi), \quad
    \kappa_A = \max \pi / \min \pi .

Reference: L. Liang, X. Chen, G. Luo, K. Yuan, *Achieving linear speedup and near-optimal complexity for
decentralized optimization over row-stochastic networks*, ICML 2025. A column-stochastic matrix is measured
through its transpose, whose Perron vector is the limit of its columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from optikit.mixing.matrix import MixingMatrix
from optikit.mixing.spectra import DENSE_LIMIT_NONSYMMETRIC
from optikit.validation import check_integer


@dataclass(frozen=True)
class PerronMetrics:
    """Perron vector and rates of a row-stochastic matrix.

    Attributes
    ----------
    vector : numpy.ndarray, float64 (n,)
        pi > 0 with ``pi A = pi``, summing to 1.
    beta : float
        Contraction per round in the pi-weighted norm; below 1 when the diagonal is positive.
    kappa : float
        max pi / min pi, >= 1.
    """

    vector: np.ndarray
    beta: float
    kappa: float

    def bound(self, k: int) -> float:
        """Bound on the 2-norm of ``A^k - 1 pi^T``."""
        return math.sqrt(self.kappa) * self.beta ** check_integer(k, "k", minimum=0)

    def rounds_for_diagonal(self) -> int:
        r"""Rounds R after which every return weight :math:`[A^R]_{ii}` lies in :math:`[\pi_i/2, 3\pi_i/2]`.

        :math:`R = \lceil (\ln 2n + \tfrac32 \ln \kappa_A) / (-\ln \beta_A) \rceil`.
        """
        if self.beta >= 1.0:
            raise ValueError(f"beta must be < 1 for a finite number of rounds, got {self.beta!r}.")
        if self.beta == 0.0:
            return 1
        needed = math.log(2 * self.vector.size) + 1.5 * math.log(self.kappa)
        return max(1, math.ceil(needed / -math.log(self.beta)))


def perron_vector(matrix: MixingMatrix) -> np.ndarray:
    """Stationary weights of a stochastic matrix: pi A = pi of kind row, C pi = pi of kind col.

    Computed without subtractions (Grassmann, Taksar, Heyman 1985), so small entries keep their digits, up
    to 600 agents; by a sparse factorisation above.

    Returns
    -------
    numpy.ndarray, float64 (n,)
        Positive, summing to 1.

    Raises
    ------
    ValueError
        If the matrix is of kind gossip, has negative weights, or its graph is not strongly connected.
    """
    A = _row_form(matrix)
    n = A.shape[0]
    pi = _eliminate(A.toarray()) if n <= DENSE_LIMIT_NONSYMMETRIC else _factorise(A)
    return pi / pi.sum()


def perron_metrics(matrix: MixingMatrix) -> PerronMetrics:
    """Perron vector, beta and kappa of a stochastic matrix; see the module and `perron_vector`."""
    A = _row_form(matrix)
    pi = perron_vector(matrix)
    return PerronMetrics(pi, _contraction(A, pi), float(pi.max() / pi.min()))


def return_ratio(matrix: MixingMatrix, max_power: int = 100_000) -> float:
    r""":math:`\theta_A = \sup_{k \ge 1, i} 1/[A^k]_{ii}`, which divides the gradients of Pull-Diag methods.

    Powers are formed until the bound on :math:`A^k - 1\pi^T` excludes a larger value: O(n * edges) work
    per power and n^2 memory.

    Parameters
    ----------
    matrix : MixingMatrix
        Of kind row, col or mixing; positive diagonal.
    max_power : int, default 100000
        RuntimeError if the supremum is not certain by then.
    """
    A = _row_form(matrix)
    if np.any(A.diagonal() <= 0):
        return math.inf
    metrics = perron_metrics(matrix)
    smallest = float(metrics.vector.min())
    largest, power, reach = 1.0 / smallest, np.eye(A.shape[0]), math.sqrt(metrics.kappa)
    for _ in range(check_integer(max_power, "max_power", minimum=1)):
        power = np.asarray(A @ power)
        reach *= metrics.beta
        least = float(power.diagonal().min())
        if least == 0.0:
            raise FloatingPointError("a return weight of the matrix underflows: theta exceeds 1e308.")
        largest = max(largest, 1.0 / least)
        # Later entries differ from pi_i by at most `reach`; 1e-12 is the accuracy theta is worth.
        if reach < smallest and 1.0 / (smallest - reach) <= largest * (1 + 1e-12):
            return largest
    raise RuntimeError(f"theta is not certain after {max_power} powers: beta is {metrics.beta:.6g}.")


def matrix_power(matrix: MixingMatrix, rounds: int) -> MixingMatrix:
    """``A^R``, the matrix of R rounds in a row, of the same kind."""
    rounds = check_integer(rounds, "rounds", minimum=0)
    power = sp.eye_array(matrix.n, format="csr")
    for _ in range(rounds):
        power = matrix.csr @ power
    return MixingMatrix(power, matrix.kind, validate=False)


def _row_form(matrix: MixingMatrix) -> sp.csr_array:
    if matrix.kind == "gossip":
        raise ValueError("a Perron vector needs kind 'row', 'col' or 'mixing', got 'gossip'.")
    if matrix.csr.nnz and matrix.csr.data.min() < 0:
        raise ValueError(f"a Perron vector needs weights >= 0, got {float(matrix.csr.data.min())!r}.")
    if not matrix.graph().is_connected:
        raise ValueError("a Perron vector needs a strongly connected graph: some agent never hears another.")
    return sp.csr_array(matrix.csr.T) if matrix.kind == "col" else matrix.csr


def _eliminate(A: np.ndarray) -> np.ndarray:
    """Stationary vector by elimination of one state after the other; sums of positive numbers only."""
    n = A.shape[0]
    for k in range(n - 1, 0, -1):
        A[:k, k] /= A[k, :k].sum()
        A[:k, :k] += np.outer(A[:k, k], A[k, :k])
    pi = np.ones(n)
    for k in range(1, n):
        pi[k] = pi[:k] @ A[:k, k]
    return pi


def _factorise(A: sp.csr_array) -> np.ndarray:
    import scipy.sparse.linalg as sla

    # With pi_0 = 1 the others solve a non-singular M-matrix system; its diagonal pivots are stable.
    transposed = A.T.tocsc()
    system = (sp.eye_array(A.shape[0] - 1, format="csc") - transposed[1:, 1:]).tocsc()
    factors = sla.splu(system, diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    rest = factors.solve(transposed[1:, [0]].toarray().ravel())
    return np.concatenate([[1.0], rest])


def _contraction(A: sp.csr_array, pi: np.ndarray) -> float:
    n = A.shape[0]
    if n == 1:
        return 0.0
    root = np.sqrt(pi)
    scaled = sp.csr_array(sp.diags_array(root) @ A @ sp.diags_array(1.0 / root))
    if n <= DENSE_LIMIT_NONSYMMETRIC:
        return float(np.linalg.norm(scaled.toarray() - np.outer(root, root), 2))
    import scipy.sparse.linalg as sla

    def apply(matrix: sp.csr_array):
        return lambda v: matrix @ v.ravel() - root * (root @ v.ravel())

    operator = sla.LinearOperator(
        (n, n), matvec=apply(scaled), rmatvec=apply(scaled.T.tocsr()), dtype=np.float64
    )
    start = np.random.default_rng(0).standard_normal(n)
    return float(sla.svds(operator, k=1, v0=start, tol=1e-12, return_singular_vectors=False)[0])
