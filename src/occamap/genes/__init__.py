"""From displacements to genes: which move, in how many cells, how far, how surely."""

from occamap.genes.rank_sum import rank_sum
from occamap.genes.stability import subsampled_means
from occamap.genes.table import gene_table

__all__ = ["gene_table", "rank_sum", "subsampled_means"]
