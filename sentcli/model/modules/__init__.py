"""The modules that may follow the transformer, one file each; a module registers itself in its class line.

These files do not import torch or onnx at the top, because an exported encoder uses them without both.

A pooling, or anything else behind the transformer, is one class and one file, as in `model/modules/`: a dataclass under
`ModuleSpec` whose fields are its settings. `parts` makes its torch parts, `forward` computes with them, `write_onnx`
writes the same into a graph; without it the whole encoder is traced. `output_width` says what comes out, `pools` that
it makes one vector of many. Settings and weights are read and written by the base class; a module of
sentence-transformers translates its settings in `from_config` and `to_config`. torch and onnx are imported inside these
methods. The class line registers it: torch model, saving and export only call these methods. A name in ``modules.json``
that no class has registered yet makes `module_called` import all files here. A class outside of the package is
registered in the same way, see models.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sentcli.model.modules.base import MODULES, Features, ModuleSpec, module_called
from sentcli.model.modules.pooling import TOKEN_POOLINGS, NormalizeSpec, PoolingSpec, TruncateSpec

if TYPE_CHECKING:
    from sentcli.model.modules.classifier import ClassifierSpec
    from sentcli.model.modules.cnn import CNNSpec
    from sentcli.model.modules.dense import DenseSpec
    from sentcli.model.modules.layer_mean import LayerMeanSpec
    from sentcli.model.modules.word_weights import WordWeightsSpec

RARE = {
    "CNNSpec": "cnn",
    "ClassifierSpec": "classifier",
    "DenseSpec": "dense",
    "LayerMeanSpec": "layer_mean",
    "WordWeightsSpec": "word_weights",
}
"""The files of modules that few models have, which are imported when one is asked for."""
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
    "module_called",
]


def __getattr__(name: str) -> Any:
    """Import a rare module on first use (PEP 562)."""
    if name in RARE:
        return getattr(import_module(f"{__name__}.{RARE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
