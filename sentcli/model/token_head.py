"""The modules after the transformer, for a graph of another program that ends with token vectors."""

from __future__ import annotations

import numpy as np
import torch

from sentcli.arrays import Float32Array, Int64Array
from sentcli.errors import InputError
from sentcli.model.building import build_stack
from sentcli.model.exported import SENTENCES, TOKEN_OUTPUTS
from sentcli.model.identity import same_modules
from sentcli.model.modules import Features
from sentcli.model.spec import EncoderSpec, count_without_ending
from sentcli.model.spec_files import read_spec


class TokenHead:
    """Makes sentence vectors of a graph's output, by the modules that the folder of the model lists.

    A graph that gives sentence vectors alone has pooled already, so that only what ends the modules is left to do:
    normalisation, and fewer dimensions.

    Args:
        spec: the description of the encoder.
        outputs: the names of the graph's outputs.
        graph: the file of the graph, for messages.

    Raises:
        InputError: if the graph has no such output, a module needs more than the last layer, or the user chose another
            pooling than that of a graph that has pooled already.
    """

    def __init__(self, spec: EncoderSpec, outputs: list[str], graph: object) -> None:
        usable = [name for name in (*TOKEN_OUTPUTS, SENTENCES) if name in outputs]
        if not usable:
            named = ", ".join(outputs)
            raise InputError(
                f"{graph} gives {named}, and neither token vectors (last_hidden_state) nor sentence vectors"
            )
        self.output = usable[0]
        self.pooled = self.output == SENTENCES  # which is looked for last
        for module in spec.modules:
            if module.needs_layers:
                raise InputError(f"{graph} gives the last layer alone, and {module.name} needs others: use the weights")
        if self.pooled:
            _check_pooling(spec, graph)
        self.stack = build_stack(spec, {})
        for built in self.stack:
            built.float().eval()
        if self.pooled:
            self.stack = self.stack[count_without_ending(spec.modules) :]

    def __call__(self, output: Float32Array, mask: Int64Array, ids: Int64Array, prompt: int) -> Float32Array:
        """Return sentence vectors ``[B, dim]``.

        Args:
            output: token vectors ``[B, T, d]``, or sentence vectors ``[B, d]`` if `pooled`.
            mask: 1 for real tokens ``[B, T]``.
            ids: the token ids ``[B, T]``.
            prompt: the number of prompt tokens at the front, which the pooling of some models leaves out.

        Raises:
            InputError: if the output has another shape.
        """
        vectors = torch.from_numpy(np.ascontiguousarray(output, np.float32))
        if vectors.ndim != (2 if self.pooled else 3):
            raise InputError(f"the graph's output {self.output} has the shape {list(vectors.shape)}")
        features = Features(vectors, torch.from_numpy(mask), prompt, torch.from_numpy(ids))
        if self.pooled:
            features.sentence = vectors
        with torch.inference_mode():
            for module in self.stack:
                features = module(features)
        assert features.sentence is not None
        return features.sentence.numpy()


def _check_pooling(spec: EncoderSpec, graph: object) -> None:
    """Refuse another pooling than the folder's own for a graph that has pooled already.

    Raises:
        InputError: which names the pooling of the folder.
    """
    own = read_spec(spec.folder)
    before_ending = [each.modules[: count_without_ending(each.modules)] for each in (own, spec)]
    if not own.assumed_pooling and not same_modules(*before_ending):
        raise InputError(
            f"{graph} gives sentence vectors alone, which are pooled already ({own.pooling} by its folder): leave "
            "--pooling out, or use the weights"
        )
