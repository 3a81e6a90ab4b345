"""Training objectives: pure functions on tensors, and small modules around them that say what they need."""

from sentcli.objectives.contrastive import Contrastive, info_nce
from sentcli.objectives.views import Objective, Views

__all__ = ["Contrastive", "Objective", "Views", "info_nce"]
