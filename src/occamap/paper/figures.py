"""The figures by name, and what each shows."""

FIGURES = {
    "maps": "displacements in the plane under four costs (Figure 1)",
    "moved": "a fresh sample, moved by each of those maps (Figure 2)",
    "prox": "the STVS regulariser and its proximal operator (Figure 3)",
    "flows": "Euclidean and Bregman descent of the transport cost (Figure 4)",
    "synthetic": "recovery of a map that moves two features of d (Figure 5)",
    "scaling": "the same, with a support that depends on x, as d grows (Figure 6)",
    "singlecell": "the single-cell protocol, on simulated cells (Figure 7)",
    "epsilon": "the same comparisons when ε is chosen, too (not in the paper)",
    "truth": "errors against h-optimal maps that are known (not in the paper)",
    "resolution": "true and false moves by the number of pooled cells (not in the paper)",
}
