"""The modules that may follow the transformer, one file each; a module registers itself in its class line.

These files do not import torch or onnx at the top, because an exported encoder uses them without both.
"""

from importlib import import_module
from pkgutil import iter_modules

from sentcli.model.modules.base import MODULES, Features, ModuleSpec
from sentcli.model.modules.classifier import ClassifierSpec
from sentcli.model.modules.cnn import CNNSpec
from sentcli.model.modules.dense import DenseSpec
from sentcli.model.modules.layer_mean import LayerMeanSpec
from sentcli.model.modules.normalize import NormalizeSpec
from sentcli.model.modules.pooling import TOKEN_POOLINGS, PoolingSpec
from sentcli.model.modules.truncate import TruncateSpec
from sentcli.model.modules.word_weights import WordWeightsSpec

for _module in iter_modules(__path__):  # importing a file registers its module
    import_module(f"{__name__}.{_module.name}")

__all__ = [
    "MODULES",
    "TOKEN_POOLINGS",
    "CNNSpec",
    "ClassifierSpec",
    "DenseSpec",
    "Features",
    "LayerMeanSpec",
    "ModuleSpec",
    "NormalizeSpec",
    "PoolingSpec",
    "TruncateSpec",
    "WordWeightsSpec",
]
