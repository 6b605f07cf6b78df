"""The problems: simulated cells of sci-Plex size, dense samples, and a tenth of either for a quick run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from benchmarks.peers import Floats


@dataclass(frozen=True)
class Problems:
    """Sizes, and the samples, which are made once and when first asked for."""

    n_control: int = 2677
    n_treated: int = 499
    n_genes: int = 34636
    n_dense: int = 2000
    d_dense: int = 1024

    @classmethod
    def quick(cls) -> Problems:
        return cls(268, 50, 3464, 200, 1024)

    @cached_property
    def cells(self) -> tuple[sp.csr_array, sp.csr_array]:
        """Control and treated cells, float32 CSR, 4.5 % of it stored."""
        from occamap.datasets import simulate_perturbation

        made = simulate_perturbation(self.n_control, self.n_treated, self.n_genes, density=0.045)
        return made.control, made.treated

    @cached_property
    def dense(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Two standard normal samples, float32."""
        rng = np.random.default_rng(0)
        shape = self.n_dense, self.d_dense
        return rng.normal(size=shape).astype(np.float32), rng.normal(size=shape).astype(np.float32)

    @property
    def cells_name(self) -> str:
        return f"cells {self.n_control:,} × {self.n_treated:,}, {self.n_genes:,} genes"

    @property
    def dense_name(self) -> str:
        return f"dense {self.n_dense:,} × {self.n_dense:,}, {self.d_dense:,} features"

    def first_cells(self, count: int) -> Floats:
        """The first control cells, dense."""
        return np.asarray(self.cells[0][:count].toarray())
