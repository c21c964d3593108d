"""Preconditioners: linear maps after which the posterior covariance is near the identity."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy
import tensorflow as tf


def root_of(covariance: np.ndarray) -> np.ndarray:
    """Return a lower triangular C with CCᵀ the covariance, in float64, whatever the units are."""
    scale = np.sqrt(np.diag(covariance))
    correlation = covariance / np.outer(scale, scale)
    return scale[:, np.newaxis] * np.linalg.cholesky(correlation)


class Preconditioner:
    """u = û + Cζ with CCᵀ = M: the chain moves in ζ.

    The posterior covariance of ζ is near the identity if M is near the covariance of u.

    The dynamics' own equations hold for ζ. With its own stepsize each coordinate gets one
    scale; a matrix M also undoes correlations. With ``axes`` V and ``lengths`` s,
    C = diag(root) (I + V diag(s − 1) Vᵀ): diagonal plus low rank, at a cost of O(dk).

    Args:
        root: C, a vector (M diagonal) or a lower triangular matrix, in float64.
        origin: û, the origin, at which ζ = 0.
        axes: V, orthonormal directions of the scaled coordinates, (d, k); ``None`` for none.
        lengths: s, factors of the scale along each, (k,).
    """

    def __init__(
        self,
        root: np.ndarray,
        origin: np.ndarray,
        axes: np.ndarray | None = None,
        lengths: np.ndarray | None = None,
    ) -> None:
        self.root = np.asarray(root, np.float64)
        self.origin = np.asarray(origin, np.float64)
        self.dense = self.root.ndim == 2
        self.axes, self.lengths = axes, lengths
        self._tensors: dict[tuple[str, tf.DType], tf.Tensor] = {}

    def __getstate__(self) -> dict[str, Any]:
        # Tensors stay in their process; a copy has its own.
        return {**self.__dict__, "_tensors": {}}

    def arrays(self) -> dict[str, np.ndarray]:
        """Return all that makes it, by name."""
        return {"root": self.root, "origin": self.origin} | self._arrays_of_axes()

    def _arrays_of_axes(self) -> dict[str, np.ndarray]:
        if self.axes is None or self.lengths is None:
            return {}
        return {"axes": self.axes, "lengths": self.lengths}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Preconditioner:
        """Return the object from the result of ``arrays``."""
        return cls(
            arrays["root"], arrays["origin"], arrays.get("axes"), arrays.get("lengths")
        )

    @property
    def kind(self) -> str:
        """Description of it, in words."""
        if self.lengths is not None:
            return f"diagonal, and {len(self.lengths)} directions"
        return "dense" if self.dense else "diagonal"

    @functools.cached_property
    def _inverse(self) -> np.ndarray:
        if not self.dense:
            return 1.0 / self.root
        return scipy.linalg.lapack.dtrtri(self.root, lower=1)[0]

    def into(self, u: np.ndarray) -> np.ndarray:
        """Return ζ of u, (..., d), as NumPy."""
        difference = np.asarray(u, np.float64) - self.origin
        if self.dense:
            return scipy.linalg.solve_triangular(self.root, difference.T, lower=True).T
        return self._times_inverse_axes(self._inverse * difference)

    def transposed_times(self, vectors: np.ndarray) -> np.ndarray:
        """Return Cᵀ times each of some vectors, (..., d), as NumPy."""
        if self.dense:
            return vectors @ self.root
        return self._times_axes(self.root * vectors)

    def times(self, vectors: np.ndarray) -> np.ndarray:
        """Return C times each of some vectors, (..., d), as NumPy."""
        if self.dense:
            return vectors @ self.root.T
        return self.root * self._times_axes(vectors)

    def _times_axes(self, vectors: np.ndarray) -> np.ndarray:
        """Return (I + V diag(s − 1) Vᵀ) times each of some vectors."""
        if self.axes is None or self.lengths is None:
            return vectors
        components = (vectors @ self.axes) * (self.lengths - 1.0)
        return vectors + components @ self.axes.T

    def _times_inverse_axes(self, vectors: np.ndarray) -> np.ndarray:
        """Return the inverse of that matrix times each of some vectors."""
        if self.axes is None or self.lengths is None:
            return vectors
        components = (vectors @ self.axes) * (1.0 / self.lengths - 1.0)
        return vectors + components @ self.axes.T

    def scaled(self, factors: np.ndarray) -> Preconditioner:
        """Return C diag(factors), of a diagonal C."""
        return Preconditioner(self.root * factors, self.origin)

    def centered_at(self, origin: np.ndarray) -> Preconditioner:
        """Return the same with another origin."""
        copied = copy.copy(self)
        copied.origin = np.asarray(origin, np.float64)
        return copied

    def out_of(self, zeta: tf.Tensor) -> tf.Tensor:
        """Return u of ζ."""
        if self.lengths is not None:
            zeta = self._along(zeta, self.lengths)
        origin = self._tensor("origin", self.origin, zeta.dtype)
        return origin + self._times("root", self.root, zeta)

    def slope(self, slope: tf.Tensor) -> tf.Tensor:
        """Return the gradient with respect to ζ, Cᵀ times that with respect to u."""
        slope = self._times("transposed", self.root.T, slope)
        return slope if self.lengths is None else self._along(slope, self.lengths)

    def score(self, slope: tf.Tensor) -> tf.Tensor:
        """Return the gradient with respect to u of that with respect to ζ."""
        if self.lengths is not None:
            slope = self._along(slope, 1.0 / self.lengths)
        return self._times("inverse", self._inverse.T, slope)

    def _times(self, name: str, matrix: np.ndarray, vector: tf.Tensor) -> tf.Tensor:
        factor = self._tensor(name, matrix, vector.dtype)
        return tf.linalg.matvec(factor, vector) if self.dense else factor * vector

    def _tensor(self, name: str, array: np.ndarray, dtype: tf.DType) -> tf.Tensor:
        """Return an array that graphs get as an input: with other numbers they are the same.

        TensorFlow writes short arrays into graphs as constants, so that these are lengthened.
        """
        key = name, dtype
        if key not in self._tensors:
            longest_constant = 128  # numbers
            flat = np.zeros(max(array.size, longest_constant + 1))
            flat[: array.size] = array.reshape(-1)
            with tf.init_scope():
                self._tensors[key] = tf.constant(flat, dtype)
        return tf.reshape(self._tensors[key][: array.size], array.shape)

    def _along(self, vector: tf.Tensor, lengths: np.ndarray) -> tf.Tensor:
        """Return (I + V diag(lengths − 1) Vᵀ) times a vector."""
        axes = tf.constant(self.axes, vector.dtype)
        components = tf.linalg.matvec(axes, vector, transpose_a=True)
        change = tf.constant(lengths - 1.0, vector.dtype) * components
        return vector + tf.linalg.matvec(axes, change)


@dataclass(frozen=True)
class _Settings:
    max_density: float = 0.2  # entries of the coupling up to which it is kept sparse
    min_eigenvalue: float = 1e-4  # relative to the median of all


_SETTINGS = _Settings()


class ArrowBlocks(NamedTuple):
    """The blocks of a matrix of the shape of an arrow: [[D, Bᵀ], [B, A]], leaves before the core.

    A lower triangular root of it is of that shape, too, without Bᵀ.

    Attributes:
        leaves: Indices of the leaves, a row for each block, (G, k).
        blocks: Blocks of D, (G, k, k).
        coupling: B, (c, G k), dense or sparse.
        core: A, (c, c), in the order of the position.
    """

    leaves: np.ndarray
    blocks: np.ndarray
    coupling: Any
    core: np.ndarray


class Arrow(Preconditioner):
    """u = û + Cζ with CCᵀ = J⁻¹, if J has the shape of an arrow.

    With the coordinates in the order (leaves, core), J = [[D, Bᵀ], [B, A]], D of G blocks of k × k.
    J = LLᵀ with L = [[L_D, 0], [W, L_S]], W = B L_D⁻ᵀ and L_S the root of A − BD⁻¹Bᵀ; C is L⁻ᵀ. A
    product with C or Cᵀ costs O(Gk² + c² + nonzero entries of W), and ζ keeps the order of u.
    With ``axes`` V and ``lengths`` s, D is L_D T⁻² L_Dᵀ with T = I + V diag(s − 1) Vᵀ: blocks of
    leaves that are coupled in a few directions, so that L_D T⁻¹ replaces L_D.

    Args:
        origin: û, in float64.
        factor: L, with lower triangular blocks L_D and L_S, and W sparse.
        axes: V, orthonormal directions of the leaves, (G k, r); ``None`` for none.
        lengths: s, factors of the scale along each, (r,).

    Attributes:
        leaves: Indices of the leaves.
    """

    def __init__(
        self,
        origin: np.ndarray,
        factor: ArrowBlocks,
        axes: np.ndarray | None = None,
        lengths: np.ndarray | None = None,
    ) -> None:
        leaves, blocks, coupling, core = factor
        self.origin = np.asarray(origin, np.float64)
        self.dense = False
        self.axes, self.lengths = axes, lengths
        self.leaves = leaves
        self._blocks = blocks
        self._core = core
        self._coupling = scipy.sparse.csr_matrix(coupling)
        in_core = np.ones(len(self.origin), bool)
        in_core[leaves] = False
        self._order = np.concatenate([leaves.ravel(), np.flatnonzero(in_core)])
        self._positions = np.argsort(self._order)
        self._inverse_blocks = np.linalg.inv(blocks)
        self._inverse_core = np.linalg.inv(core)
        self._size = leaves.size
        self._shape = leaves.shape
        # What remains of each coordinate's SD if all others are fixed, up to the coupling.
        self.root = self._joined(
            np.diagonal(self._inverse_blocks, axis1=1, axis2=2).reshape(-1),
            np.diag(self._inverse_core),
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """Return all that makes it, by name."""
        W = self._coupling
        return self._arrays_of_axes() | {
            "origin": self.origin,
            "leaves": self.leaves,
            "blocks": self._blocks,
            "core": self._core,
            "coupling": W.data,
            "indices": W.indices,
            "indptr": W.indptr,
        }

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Arrow:
        """Return the object from the result of ``arrays``."""
        leaves, core = arrays["leaves"], arrays["core"]
        W = scipy.sparse.csr_matrix(
            (arrays["coupling"], arrays["indices"], arrays["indptr"]),
            (len(core), leaves.size),
        )
        factor = ArrowBlocks(leaves, arrays["blocks"], W, core)
        return cls(arrays["origin"], factor, arrays.get("axes"), arrays.get("lengths"))

    @property
    def kind(self) -> str:
        """Description of it, in words."""
        G, k = self._shape
        coupled = ""
        if self.lengths is not None:
            coupled = f", coupled in {len(self.lengths)} directions"
        return f"{G} blocks of {k} × {k}{coupled}, and a core of {len(self._core)}"

    def _joined(self, leaves: np.ndarray, core: np.ndarray) -> np.ndarray:
        """Return a vector in the order of u; a leading axis is kept."""
        return np.concatenate([leaves, core], -1)[..., self._positions]

    def _leaves_and_core(self, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ordered = np.asarray(vectors, np.float64)[..., self._order]
        return ordered[..., : self._size], ordered[..., self._size :]

    def _by_block(
        self, spec: str, blocks: np.ndarray, leaves: np.ndarray
    ) -> np.ndarray:
        by_block = leaves.reshape(*leaves.shape[:-1], *self._shape)
        return np.einsum(spec, blocks, by_block).reshape(leaves.shape)

    def into(self, u: np.ndarray) -> np.ndarray:
        """Return ζ of u, (..., d), as NumPy: Lᵀ times the distance to the origin."""
        leaves, core = self._leaves_and_core(np.asarray(u, np.float64) - self.origin)
        rotated = self._by_block("gji,...gj->...gi", self._blocks, leaves)
        scaled = self._times_inverse_axes(rotated)
        coupled = _times_sparse(core, self._coupling)
        return self._joined(scaled + coupled, core @ self._core)

    def times(self, vectors: np.ndarray) -> np.ndarray:
        """Return C times each of some vectors, (..., d), as NumPy."""
        leaves, core = self._leaves_and_core(vectors)
        core = core @ self._inverse_core
        leaves = self._times_axes(leaves - _times_sparse(core, self._coupling))
        leaves = self._by_block("gji,...gj->...gi", self._inverse_blocks, leaves)
        return self._joined(leaves, core)

    def transposed_times(self, vectors: np.ndarray) -> np.ndarray:
        """Return Cᵀ times each of some vectors, (..., d), as NumPy."""
        leaves, core = self._leaves_and_core(vectors)
        rotated = self._by_block("gij,...gj->...gi", self._inverse_blocks, leaves)
        leaves = self._times_axes(rotated)
        coupled = _times_sparse(leaves, self._coupling.T)
        core = (core - coupled) @ self._inverse_core.T
        return self._joined(leaves, core)

    def out_of(self, zeta: tf.Tensor) -> tf.Tensor:
        """Return u of ζ."""
        leaves, core = self._split(zeta)
        core = _product(self._inverse_core.T, core)
        leaves = self._by_axes(leaves - self._across(core))
        leaves = self._blockwise(np.swapaxes(self._inverse_blocks, 1, 2), leaves)
        return tf.constant(self.origin, zeta.dtype) + self._whole(leaves, core)

    def slope(self, slope: tf.Tensor) -> tf.Tensor:
        """Return the gradient with respect to ζ, Cᵀ = L⁻¹ times that with respect to u."""
        leaves, core = self._split(slope)
        leaves = self._by_axes(self._blockwise(self._inverse_blocks, leaves))
        core = _product(self._inverse_core, core - self._along_core(leaves))
        return self._whole(leaves, core)

    def score(self, slope: tf.Tensor) -> tf.Tensor:
        """Return the gradient with respect to u, L times that with respect to ζ."""
        leaves, core = self._split(slope)
        core = self._along_core(leaves) + _product(self._core, core)
        leaves = self._by_axes(leaves, back=True)
        return self._whole(self._blockwise(self._blocks, leaves), core)

    def _split(self, vector: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        ordered = tf.gather(vector, tf.constant(self._order, tf.int32))
        return tf.reshape(ordered[: self._size], self._shape), ordered[self._size :]

    def _whole(self, leaves: tf.Tensor, core: tf.Tensor) -> tf.Tensor:
        ordered = tf.concat([tf.reshape(leaves, [-1]), core], 0)
        return tf.gather(ordered, tf.constant(self._positions, tf.int32))

    def _by_axes(self, leaves: tf.Tensor, back: bool = False) -> tf.Tensor:
        """Return T, or its inverse, times the leaves, (G, k)."""
        if self.lengths is None:
            return leaves
        lengths = 1.0 / self.lengths if back else self.lengths
        return tf.reshape(self._along(tf.reshape(leaves, [-1]), lengths), self._shape)

    def _blockwise(self, blocks: np.ndarray, leaves: tf.Tensor) -> tf.Tensor:
        if self._shape[1] == 1:
            return tf.constant(blocks[:, :, 0], leaves.dtype) * leaves
        products = tf.constant(blocks, leaves.dtype) * leaves[:, tf.newaxis, :]
        return tf.reduce_sum(products, 2)

    def _across(self, core: tf.Tensor) -> tf.Tensor:
        """Return Wᵀ times a vector of the core, (G, k)."""
        if not len(self._core):
            return tf.zeros(self._shape, core.dtype)
        if self._is_sparse:
            indices, values = _padded_rows(self._coupling.T.tocsr())
            return tf.reshape(_sparse_product(core, indices, values), self._shape)
        return tf.reshape(_product(self._coupling.toarray().T, core), self._shape)

    def _along_core(self, leaves: tf.Tensor) -> tf.Tensor:
        """Return W times the leaves, (c,)."""
        flat = tf.reshape(leaves, [-1])
        if self._is_sparse:
            return _sparse_product(flat, *_padded_rows(self._coupling))
        return _product(self._coupling.toarray(), flat)

    @property
    def _is_sparse(self) -> bool:
        size = np.prod(self._coupling.shape)
        return self._coupling.nnz < _SETTINGS.max_density * size

    def scaled(self, factors: np.ndarray) -> Arrow:
        """Return C diag(factors); with axes, factors of the leaves are 1."""
        leaves, core = self._leaves_and_core(factors)
        assert self.axes is None or (leaves == 1.0).all()
        blocks = self._blocks / leaves.reshape(*self._shape)[:, np.newaxis, :]
        W = self._coupling @ scipy.sparse.diags(1.0 / leaves)
        factor = ArrowBlocks(self.leaves, blocks, W, self._core / core)
        return Arrow(self.origin, factor, self.axes, self.lengths)

    def centered_at(self, origin: np.ndarray) -> Arrow:
        """Return the same with another origin."""
        copied = copy.copy(self)
        copied.origin = np.asarray(origin, np.float64)
        return copied


def arrow_of(
    origin: np.ndarray, information: ArrowBlocks, few: np.ndarray | None = None
) -> Arrow:
    """Return the whitening by an information of the shape of an arrow.

    What is not positive definite is made so: eigenvalues of a block, and of the core that is left,
    become positive, and at least a small part of the usual one.

    Args:
        origin: û.
        information: Blocks of the information.
        few: Mask of the coordinates of the core that are changed alone, (c,), so that the
            information of the rest stays; ``None`` for none.
    """
    leaves = information.leaves
    values, vectors = np.linalg.eigh(information.blocks)
    values = _lift_eigenvalues(values)
    definite = (vectors * values[:, np.newaxis]) @ np.swapaxes(vectors, 1, 2)
    blocks = np.linalg.cholesky(definite)
    inverse = np.linalg.inv(blocks)
    B = scipy.sparse.csr_matrix(information.coupling)
    if leaves.shape[1] > 1:
        W = B @ scipy.sparse.block_diag(list(np.swapaxes(inverse, 1, 2)), "csc")
    else:
        W = B.multiply(inverse.reshape(1, -1)).tocsr()
    schur = information.core - np.asarray((W @ W.T).toarray())
    if few is not None and few.any() and not few.all():
        # The few become positive definite given all others.
        changed = np.ix_(few, few)
        cross = np.ix_(few, ~few)
        fixed = schur[np.ix_(~few, ~few)]
        explained = schur[cross] @ np.linalg.solve(fixed, schur[cross].T)
        root = _definite_root(schur[changed] - explained)
        schur = schur.copy()
        schur[changed] = explained + root @ root.T
    return Arrow(origin, ArrowBlocks(leaves, blocks, W, _definite_root(schur)))


def arrow_of_coupled(
    origin: np.ndarray,
    information: ArrowBlocks,
    axes: np.ndarray,
    values: np.ndarray,
    solved: np.ndarray,
) -> Arrow:
    """Return the whitening by an information that is nearly the identity among single leaves.

    The core is whitened exactly, and independent of the leaves, whatever D is.

    Args:
        origin: û.
        information: Blocks of the information, with ones for D, (G, 1, 1).
        axes: Directions in which leaves are coupled, orthonormal, (G, r).
        values: Information in each of these, (r,).
        solved: B D⁻¹, (c, G).
    """
    lengths = 1.0 / np.sqrt(values)
    W = solved + ((solved @ axes) * (1.0 / lengths - 1.0)) @ axes.T
    root = _definite_root(information.core - solved @ information.coupling.T)
    factor = information._replace(coupling=W, core=root)
    return Arrow(origin, factor, axes, lengths)


def _lift_eigenvalues(values: np.ndarray) -> np.ndarray:
    """Return eigenvalues made positive, and not much smaller than usual."""
    values = np.abs(values)
    usual = max(float(np.median(values)), np.finfo(float).tiny)
    return np.maximum(values, _SETTINGS.min_eigenvalue * usual)


def _definite_root(matrix: np.ndarray) -> np.ndarray:
    """Return the lower triangular root of a symmetric matrix, made positive definite."""
    if not len(matrix):
        return matrix
    diagonal = np.abs(np.diag(matrix))
    scale = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    scaled = (matrix + matrix.T) / 2 / np.outer(scale, scale)
    try:
        return scale[:, np.newaxis] * np.linalg.cholesky(scaled)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(scaled)
        definite = (vectors * _lift_eigenvalues(values)) @ vectors.T
        return scale[:, np.newaxis] * np.linalg.cholesky(definite)


def inverse_root(matrix: np.ndarray) -> np.ndarray:
    """Return a lower triangular C with CCᵀ the inverse of a symmetric matrix.

    What is not positive definite is made so, as in an arrow.
    """
    # With the order of coordinates reversed, L⁻ᵀ is lower triangular.
    reversed_root = _definite_root(matrix[::-1, ::-1])
    inverse, _ = scipy.linalg.lapack.dtrtri(reversed_root, lower=1)
    return inverse.T[::-1, ::-1]


def _times_sparse(vectors: np.ndarray, matrix: Any) -> np.ndarray:
    """Return each row vector times a sparse matrix."""
    flat = vectors.reshape(int(np.prod(vectors.shape[:-1])), vectors.shape[-1])
    products = np.asarray((matrix.T @ flat.T).T)
    return products.reshape(*vectors.shape[:-1], matrix.shape[1])


def _product(matrix: np.ndarray, vector: tf.Tensor) -> tf.Tensor:
    return tf.linalg.matvec(tf.constant(matrix, vector.dtype), vector)


def _sparse_product(
    vector: tf.Tensor, indices: np.ndarray, values: np.ndarray
) -> tf.Tensor:
    """Return a sparse matrix times a vector, the matrix as padded rows."""
    entries = tf.gather(vector, tf.constant(indices, tf.int32))
    return tf.reduce_sum(tf.constant(values, vector.dtype) * entries, 1)


def _padded_rows(matrix: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return columns and values of each row's entries, padded by zeros to equal lengths."""
    counts = np.diff(matrix.indptr)
    width = max(1, int(counts.max(initial=0)))
    rows = np.repeat(np.arange(len(counts)), counts)
    column = np.arange(len(rows)) - np.repeat(matrix.indptr[:-1], counts)
    indices = np.zeros((len(counts), width), int)
    values = np.zeros((len(counts), width))
    indices[rows, column] = matrix.indices
    values[rows, column] = matrix.data
    return indices, values
