"""From displacements to genes: which move, in how many cells, how far, how surely."""

from occamap.genes.null import Null, null_map
from occamap.genes.rank_sum import rank_sum
from occamap.genes.stability import subsampled_means
from occamap.genes.table import gene_table

__all__ = ["Null", "gene_table", "null_map", "rank_sum", "subsampled_means"]
