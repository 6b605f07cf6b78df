"""How sure: differences between matched samples, their standard errors, and error rates over many of them."""

from occamap.inference.contrasts import Contrasts, contrasts
from occamap.inference.multiplicity import q_values
from occamap.inference.shares import FEWEST_REPLICATES, balance
from occamap.inference.significance import Significance, significance

__all__ = ["FEWEST_REPLICATES", "Contrasts", "Significance", "balance", "contrasts", "q_values", "significance"]
