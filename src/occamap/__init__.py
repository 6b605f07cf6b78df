"""occamap: which features move, in which samples, and by how much."""
from occamap._version import __version__
from occamap.costs import *
