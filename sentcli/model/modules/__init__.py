"""The modules that may follow the transformer, one file each; a module registers itself in its class line.

These files do not import torch or onnx at the top, because an exported encoder uses them without both.

A pooling, or anything else behind the transformer, is one class and one file, as in `model/modules/`: a dataclass under
`ModuleSpec` whose fields are its settings. `parts` makes its torch parts, `forward` computes with them, `write_onnx`
writes the same into a graph; without it the whole encoder is traced. `output_width` says what comes out, `pools` that
it makes one vector of many. Settings and weights are read and written by the base class; a module of
sentence-transformers translates its settings in `from_config` and `to_config`. torch and onnx are imported inside these
methods. The class line registers it: spec, torch model, saving and export only call these methods, and no list names
it. A class outside of the package is registered in the same way, see models.
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
