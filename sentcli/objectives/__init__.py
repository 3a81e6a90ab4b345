"""Training objectives: pure functions on tensors, and the terms of a loss that are made of them."""

from importlib import import_module
from pkgutil import iter_modules

from sentcli.objectives.auxiliary_mlm import AuxiliaryMLM, CondenserMLM
from sentcli.objectives.base import OBJECTIVES, Objective, ObjectiveContext, StatefulObjective, Views, Vocabulary
from sentcli.objectives.contrastive import Contrastive, InBatchNegatives, info_nce
from sentcli.objectives.contrastive_views import MultiPositive, NTXent, multi_positive_info_nce, nt_xent
from sentcli.objectives.dimension_wise import (
    DimensionWise,
    OffDropout,
    dimension_wise_loss,
    off_dropout_info_nce,
)
from sentcli.objectives.distillation import (
    MarginMSE,
    SimilarityDistillation,
    VectorDistillation,
    margin_mse,
    similarity_distance,
    vector_distance,
)
from sentcli.objectives.masked_lm import MaskedLM
from sentcli.objectives.mutual_information import (
    AttentionMI,
    JensenShannon,
    attention_mutual_information,
    jensen_shannon_mi_loss,
)
from sentcli.objectives.pairs import (
    AnglE,
    ContrastiveTension,
    CoSENT,
    CosineRegression,
    OnlineContrastive,
    PairClasses,
    PairScore,
    Reconstruction,
    angle_similarity,
    contrastive_tension_loss,
    cosine_regression_loss,
    online_contrastive_loss,
    ranking_loss,
    reconstruction_loss,
)
from sentcli.objectives.ranking import (
    RankingConsistency,
    RankingDistillation,
    list_mle,
    list_net,
    ranking_consistency,
)
from sentcli.objectives.replaced_token import ReplacedTokenDetection
from sentcli.objectives.supervised import SupervisedContrastive, supervised_contrastive_loss
from sentcli.objectives.whitening import shuffled_group_whitening

for _module in iter_modules(__path__):  # importing a file registers its objectives
    import_module(f"{__name__}.{_module.name}")

__all__ = [
    "OBJECTIVES",
    "AnglE",
    "AttentionMI",
    "AuxiliaryMLM",
    "CoSENT",
    "CondenserMLM",
    "Contrastive",
    "ContrastiveTension",
    "CosineRegression",
    "DimensionWise",
    "InBatchNegatives",
    "JensenShannon",
    "MarginMSE",
    "MaskedLM",
    "MultiPositive",
    "NTXent",
    "Objective",
    "ObjectiveContext",
    "OffDropout",
    "OnlineContrastive",
    "PairClasses",
    "PairScore",
    "RankingConsistency",
    "RankingDistillation",
    "Reconstruction",
    "ReplacedTokenDetection",
    "SimilarityDistillation",
    "StatefulObjective",
    "SupervisedContrastive",
    "VectorDistillation",
    "Views",
    "Vocabulary",
    "angle_similarity",
    "attention_mutual_information",
    "contrastive_tension_loss",
    "cosine_regression_loss",
    "dimension_wise_loss",
    "info_nce",
    "jensen_shannon_mi_loss",
    "list_mle",
    "list_net",
    "margin_mse",
    "multi_positive_info_nce",
    "nt_xent",
    "off_dropout_info_nce",
    "online_contrastive_loss",
    "ranking_consistency",
    "ranking_loss",
    "reconstruction_loss",
    "shuffled_group_whitening",
    "similarity_distance",
    "supervised_contrastive_loss",
    "vector_distance",
]
