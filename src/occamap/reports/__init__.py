"""One self-contained page from a saved run."""

from occamap.reports.build import NAME, page, report
from occamap.reports.html import check_packages
from occamap.reports.saved import Run, grouped

__all__ = ["NAME", "Run", "check_packages", "grouped", "page", "report"]
