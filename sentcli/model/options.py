"""The options with which a model is loaded, declared once for flags, keywords and `SentenceEncoder.load`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from annotated_doc import Doc
from annotated_types import Ge

from sentcli.bounds import Flag, Holds, one_of
from sentcli.errors import InputError
from sentcli.machine import accelerator_in_sight

BackendName = Literal["auto", "torch", "onnx", "openvino"]
Precision = Literal["auto", "fp32", "fp16", "bf16", "int8"]
MODEL_HELP = "A model folder, a short name (sentcli doctor lists them), or a hub id"
SERVED_HELP = "A model folder, a hub id, a short name (sentcli doctor), or URL#NAME"
"""The help where a model may be served, too, as ``http://HOST/v1#NAME``: the texts are sent to an OpenAI-compatible
address."""
Models = Annotated[list[str], Holds.MODEL, Flag("-m"), Doc(f"{SERVED_HELP}; several are compared.")]
Model = Annotated[str, Holds.MODEL, Flag("-m"), Doc(f"{MODEL_HELP}.")]
OptionalModel = Annotated[str | None, Holds.MODEL, Flag("-m"), Doc(f"{MODEL_HELP}.")]
QueryPrompt = Annotated[
    str | None, Holds.WORDS, Flag(panel="Model"), Doc("Text in front of each query; default: the model's own.")
]
DocPrompt = Annotated[
    str | None, Holds.WORDS, Flag(panel="Model"), Doc("Text in front of each document; default: the model's own.")
]
MIN_LENGTH = 3
"""The least maximum length in tokens: one word between two special tokens."""


@dataclass(frozen=True)
class ModelOptions:
    """How the folder of a model is read."""

    # their help stands in the types, because verbs read the docstring of the class below, which inherits them
    pooling: Annotated[
        str | None,
        Doc(
            "cls, cls-head, mean, max, first-last-avg, layer1-last-avg or another of docs/models.md, instead of what "
            "the model says."
        ),
    ] = None
    normalize: Annotated[bool | None, Doc("Force vectors of length 1 on or off.")] = None
    max_length: Annotated[
        int | None,
        Ge(MIN_LENGTH),
        Doc("Tokens a text, special ones included; longer texts are cut and counted."),
    ] = None


@dataclass(frozen=True)
class LoadOptions(ModelOptions):
    """How the folder of a model is read, and what runs it.

    Attributes:
        backend: What runs the model: auto takes the fastest that gives the same vectors and says which.
        precision: auto is fp32, or what an export is in; int8 with onnx and openvino, bf16 and fp16 where the hardware
            computes in them.
        device: auto, cpu, cuda, cuda:1, mps.
        allow_cpu_fallback: Take the CPU if --device is not there, instead of an error.
    """

    backend: BackendName = "auto"
    precision: Precision = "auto"
    device: str = "auto"
    allow_cpu_fallback: bool = False

    def __post_init__(self) -> None:
        one_of("backend", self.backend, get_args(BackendName))
        one_of("precision", self.precision, get_args(Precision))
        if self.precision == "int8" and self.backend == "torch":
            raise InputError("int8 runs on the onnx or openvino backend, not on torch")
        if self.precision == "bf16" and self.backend == "onnx":
            raise InputError("onnxruntime does not compute in bf16: use --backend openvino or torch")
        if self.precision == "fp16" and self.backend == "onnx" and self.on_cpu:
            raise InputError("a CPU computes fp16 with onnxruntime many times slower than fp32; use a GPU")

    @property
    def on_cpu(self) -> bool:
        """Whether the model will run on a CPU, as far as can be told without importing torch."""
        may_fall_back = self.device == "auto" or self.allow_cpu_fallback
        return self.device == "cpu" or (may_fall_back and not accelerator_in_sight())
