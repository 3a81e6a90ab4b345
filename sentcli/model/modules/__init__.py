"""What may follow the transformer, a file for each: a module of the encoder registers itself by its class line.

No torch and no onnx at the top of these files: an exported encoder reads them, and runs without both.
"""

from importlib import import_module
from pkgutil import iter_modules

from sentcli.model.modules.base import MODULES, Features, ModuleSpec
from sentcli.model.modules.cnn import CNNSpec
from sentcli.model.modules.dense import DenseSpec
from sentcli.model.modules.layer_mean import LayerMeanSpec
from sentcli.model.modules.normalize import NormalizeSpec
from sentcli.model.modules.pooling import TOKEN_POOLINGS, PoolingSpec

for _module in iter_modules(__path__):  # a file more is a module more
    import_module(f"{__name__}.{_module.name}")

__all__ = [
    "MODULES",
    "TOKEN_POOLINGS",
    "CNNSpec",
    "DenseSpec",
    "Features",
    "LayerMeanSpec",
    "ModuleSpec",
    "NormalizeSpec",
    "PoolingSpec",
]
