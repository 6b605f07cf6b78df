"""Every γ for about the price of one, and ε and γ chosen by held-out samples."""

from occamap.selection.diagnostics import Diagnostics
from occamap.selection.monge_map_cv import MongeMapCV
from occamap.selection.path import GammaPath, gamma_path

__all__ = ["Diagnostics", "GammaPath", "MongeMapCV", "gamma_path"]
