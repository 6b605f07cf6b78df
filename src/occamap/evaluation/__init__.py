"""How good maps are on cells they have not seen: conditions × splits × costs × γ × ε, resumable."""

from occamap._optional import require as _require

_require(("anndata", "pandas", "pyarrow"), "occamap.evaluate", "cells")

from occamap.evaluation.run import evaluate  # noqa: E402

__all__ = ["evaluate"]
