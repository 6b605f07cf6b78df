"""The figures of the paper, each as numbers, a picture, and a verdict on every claim; on the public API alone."""

from occamap.paper.figures import FIGURES
from occamap.paper.page import write_page
from occamap.paper.reproduce import Outcome, reproduce
from occamap.paper.study import Verdict

__all__ = ["FIGURES", "Outcome", "Verdict", "reproduce", "write_page"]
