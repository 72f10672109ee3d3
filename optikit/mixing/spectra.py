r"""Spectra of graphs and mixing matrices: contraction factor, spectral gap, chi.

Symmetric matrices are measured through the eigenvalues :math:`l` of the gossip form :math:`G = I - W` on
the complement of the constant vector: :math:`1 - (1 - l)^2 = l (2 - l)` keeps its digits where
:math:`1 - \lambda^2` would lose them. Others need the 2-norm: eigenvalues mislead for non-normal W.
Above `DENSE_LIMIT` agents nothing dense is formed: Lanczos on the deflated operator, and shift-invert with
a sparse factorisation where the gap is too small for it (rings, paths, grids: their factors stay sparse).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

if TYPE_CHECKING:
    import scipy.sparse.linalg as sla

DENSE_LIMIT = 2000
# 2-norms of non-symmetric matrices cost a full SVD: the sparse solver wins much earlier.
DENSE_LIMIT_NONSYMMETRIC = 600
# Below this, 1 - lambda^2 is rounding: the graph is not connected.
DISCONNECTED = 1e-13


@dataclass(frozen=True)
class Spectrum:
    """Contraction factor ``lam``, ``gap = 1 - lam`` and ``chi = 1 / (1 - lam^2)``."""

    lam: float
    gap: float
    chi: float


def gossip_spectrum(
    gossip: sp.csr_array, *, symmetric: bool, shifts: tuple[tuple[int, float], ...] | None = None
) -> Spectrum:
    """Spectrum of the gossip matrix ``G`` (n, n): ``lam = ||P - G P||_2``, inf for chi if that is >= 1.

    `shifts` are the (shift, weight) pairs of a circulant matrix, whose spectrum is a Fourier transform.
    """
    n = gossip.shape[0]
    if n == 1:
        return Spectrum(0.0, 1.0, 1.0)
    if symmetric:
        low, high = _symmetric_extremes(gossip, shifts)
        lam = max(abs(1.0 - low), abs(1.0 - high))
        gap = min(low, 2.0 - high)
        reach = gap * (2.0 - gap)
    else:
        lam = _norm_of_contraction(gossip, shifts)
        gap = 1.0 - lam
        reach = gap * (1.0 + lam)
    if reach <= DISCONNECTED:
        return Spectrum(lam, max(gap, 0.0) if lam < 1.0 else 0.0, np.inf)
    return Spectrum(float(lam), float(gap), float(1.0 / reach))


def laplacian_extremes(laplacian: sp.csr_array) -> tuple[float, float]:
    """Second smallest and largest eigenvalue of a graph Laplacian (n, n), n >= 2."""
    return _symmetric_extremes(laplacian, None)


def _circulant_eigenvalues(n: int, shifts: tuple[tuple[int, float], ...]) -> np.ndarray:
    # Eigenvalue at frequency f of sum_s w S^s is sum_s w exp(2 pi i f s / n); f = 0 is the constant vector.
    column = np.zeros(n)
    for shift, weight in shifts:
        column[shift] += weight
    return np.fft.fft(column)[1:]


def _symmetric_extremes(
    matrix: sp.csr_array, shifts: tuple[tuple[int, float], ...] | None
) -> tuple[float, float]:
    """Smallest and largest eigenvalue on the complement of the constant vector (which `matrix` kills)."""
    n = matrix.shape[0]
    if shifts is not None:
        return _real_circulant_extremes(n, shifts)
    if n <= DENSE_LIMIT:
        bound = float(abs(matrix).sum(axis=1).max())
        # + c J moves the constant vector above everything else.
        values = np.linalg.eigvalsh(matrix.toarray() + 2.0 * bound / n)
        return float(values[0]), float(values[-2])
    return _lanczos_extremes(matrix)


def _real_circulant_extremes(n: int, shifts: tuple[tuple[int, float], ...]) -> tuple[float, float]:
    # A Fourier transform resolves eigenvalues to 1e-16 of the largest: too few digits for long rings.
    # For rows that sum to 0: sum_s w cos(2 pi f s / n) = -2 sum_s w sin^2(pi f s / n), free of cancellation.
    frequencies = np.arange(1, n // 2 + 1)
    values = np.zeros(frequencies.size)
    for shift, weight in shifts:
        values -= 2.0 * weight * np.sin(np.pi / n * ((frequencies * shift) % n)) ** 2
    return float(values.min()), float(values.max())


def _lanczos_extremes(matrix: sp.csr_array) -> tuple[float, float]:
    import scipy.sparse.linalg as sla

    n = matrix.shape[0]
    bound = float(abs(matrix).sum(axis=1).max())
    if bound == 0.0:
        return 0.0, 0.0
    start = np.random.default_rng(0).standard_normal(n)

    def deflated(sign: float, shift: float) -> sla.LinearOperator:
        # sign * matrix + shift J: the constant vector is sent to `shift`, out of the way of the largest.
        return sla.LinearOperator(
            (n, n), matvec=lambda v: sign * (matrix @ v) + shift * v.mean(), dtype=np.float64
        )

    high = _largest(deflated(1.0, 0.0), start)
    if high is None:
        high = float(sla.eigsh(matrix, k=1, sigma=bound * 1.0001, which="LM", v0=start)[0][0])
    low = _largest(deflated(-1.0, -2.0 * bound), start)
    if low is not None and -low > 1e-6 * bound:
        return -low, high
    if _components(matrix) > 1:
        return 0.0, high
    # A slightly negative shift keeps the factorised matrix definite; the two values nearest are 0 and l_2.
    # l_2 keeps a relative error of about 1e-16 * bound / l_2.
    values = sla.eigsh(matrix, k=2, sigma=-1e-7 * bound, which="LM", v0=start, return_eigenvectors=False)
    return float(np.max(values)), high


def _largest(operator: sla.LinearOperator, start: np.ndarray) -> float | None:
    import scipy.sparse.linalg as sla

    try:
        values = sla.eigsh(
            operator, k=1, which="LA", v0=start, ncv=48, maxiter=60, tol=1e-10, return_eigenvectors=False
        )
    except sla.ArpackNoConvergence:
        return None
    return float(values[0])


def _components(matrix: sp.csr_array) -> int:
    from scipy.sparse.csgraph import connected_components

    return int(connected_components(matrix, directed=False, return_labels=False))


def _norm_of_contraction(gossip: sp.csr_array, shifts: tuple[tuple[int, float], ...] | None) -> float:
    """``||P - G P||_2`` of a matrix that need not be symmetric."""
    n = gossip.shape[0]
    if shifts is not None:  # circulant matrices are normal: moduli of eigenvalues
        return float(np.abs(1.0 - _circulant_eigenvalues(n, shifts)).max())
    if n <= DENSE_LIMIT_NONSYMMETRIC:
        return float(np.linalg.norm(np.eye(n) - 1.0 / n - gossip.toarray(), 2))
    import scipy.sparse.linalg as sla

    transposed = gossip.T.tocsr()

    def apply(matrix: sp.csr_array):
        def contraction(v: np.ndarray) -> np.ndarray:
            v = v.ravel() - v.mean()
            return v - matrix @ v

        return contraction

    operator = sla.LinearOperator((n, n), matvec=apply(gossip), rmatvec=apply(transposed), dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(n)
    values = sla.svds(operator, k=1, v0=start, tol=1e-12, return_singular_vectors=False)
    return float(values[0])
