"""int8 for OpenVINO: weights and activations quantised by nncf, with ranges learned from calibration texts."""

from __future__ import annotations

import io
import logging
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from sentcli.errors import MissingExtraError
from sentcli.model import batching
from sentcli.model.exported import OPENVINO
from sentcli.model.onnx_backend import CPU_BATCH_TOKENS
from sentcli.model.tokenizing import TextTokenizer, pad


def quantise(onnx_file: Path, folder: Path, tokenizer: TextTokenizer, texts: Sequence[str]) -> None:
    """Write ``openvino.xml`` and ``openvino.bin`` in 8 bits.

    Args:
        onnx_file: the model in fp32.
        folder: to write to.
        tokenizer: of the model.
        texts: calibration texts, of all lengths.
    """
    try:
        import nncf
        import openvino
    except ImportError as error:
        raise MissingExtraError("openvino and nncf", "openvino", "int8 on openvino") from error
    logging.getLogger("nncf").setLevel(logging.ERROR)
    core = openvino.Core()
    plain = onnx_file.with_suffix(".xml")  # nncf loses its way in a model that was read from ONNX
    openvino.save_model(core.read_model(onnx_file), plain, compress_to_fp16=False)
    tokens = tokenizer(texts)
    batches: list[dict[str, Any]] = [
        pad(tokens, rows, tokenizer.pad_id) for rows in batching.pack(tokens.lengths, CPU_BATCH_TOKENS)
    ]
    with redirect_stdout(io.StringIO()):  # where nncf draws its progress
        quantised = nncf.quantize(
            core.read_model(plain),
            nncf.Dataset(batches),
            model_type=nncf.ModelType.TRANSFORMER,
            subset_size=len(batches),
        )
    openvino.save_model(quantised, folder / OPENVINO, compress_to_fp16=False)
