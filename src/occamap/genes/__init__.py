"""From displacements to genes: which move, in how many cells, how far, how surely."""

from occamap.genes.bounds import ASSUMPTIONS, expected_false
from occamap.genes.null import Null, null_maps
from occamap.genes.rank_sum import rank_sum
from occamap.genes.refits import subsampled_means
from occamap.genes.table import gene_table

__all__ = ["ASSUMPTIONS", "Null", "expected_false", "gene_table", "null_maps", "rank_sum", "subsampled_means"]
