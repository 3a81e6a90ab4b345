"""How a model is read and what runs it: declared here once, from the flag to `SentenceEncoder.load`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_doc import Doc
from annotated_types import Ge


@dataclass(frozen=True)
class ModelOptions:
    """What a model's folder says, and what the user says instead."""

    pooling: Annotated[
        str | None,
        Doc(
            "cls, cls-head, mean, max, first-last-avg, layer1-last-avg or another of docs/models.md, instead of what "
            "the model says."
        ),
    ] = None
    normalize: Annotated[bool | None, Doc("Force vectors of length 1 on or off.")] = None
    max_length: Annotated[
        int | None, Ge(3), Doc("Tokens a text, special ones included; longer texts are cut and counted.")
    ] = None


@dataclass(frozen=True)
class LoadOptions(ModelOptions):
    """How a model is loaded."""

    backend: Annotated[
        Literal["auto", "torch", "onnx", "openvino"],
        Doc("What runs the model: auto takes the fastest that gives the same vectors and says which."),
    ] = "auto"
    precision: Annotated[
        Literal["auto", "fp32", "fp16", "bf16", "int8"],
        Doc(
            "auto is fp32, or what an export is in; int8 with onnx and openvino, bf16 and fp16 where the hardware "
            "computes in them."
        ),
    ] = "auto"
    device: Annotated[str, Doc("auto, cpu, cuda, cuda:1, mps.")] = "auto"
    allow_cpu_fallback: Annotated[bool, Doc("Take the CPU if --device is not there, instead of an error.")] = False
