"""``encode``: rows of files in, vectors out; with ``--update --dry-run`` what that would change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.cluster import ClusterOptions
from sentcli.command.result import Clock, Record, Result, kept_if_interrupted
from sentcli.compression import Compression
from sentcli.encoder import prompt_of_rows
from sentcli.errors import InputError
from sentcli.io.writers import DIRECTORY, output_format
from sentcli.machine import environment, threads
from sentcli.model.options import LoadOptions
from sentcli.stores.filling import Filling
from sentcli.stores.options import InputOptions, PassageOptions, UpdateOptions, VectorOptions, WriteOptions
from sentcli.stores.passages import Cutting
from sentcli.stores.row_vectors import EncodedVectors, EncodeSettings
from sentcli.waiting import busy_note

if TYPE_CHECKING:
    from sentcli.cluster.pool import Pool
    from sentcli.encoder.sentence_encoder import SentenceEncoder

TAKES_LONG = 50_000
"""The rows from which encoding takes long enough to say what slows it down."""


@dataclass(frozen=True)
class EncodeJob:
    """What ``encode`` is asked for: the groups of its options, as `verbs.encode` declares them."""

    inputs: Sequence[str]
    output: str
    model: str
    reading: InputOptions
    prompt: tuple[str | None, str | None]
    """The name of one of the model's prompts, and the text in front of each row."""
    load: LoadOptions
    devices: Sequence[str]
    batch_tokens: int | None
    passages: PassageOptions
    compression: VectorOptions
    writing: WriteOptions
    updating: UpdateOptions
    cluster: ClusterOptions

    def run(self) -> Result:
        """Read the rows, and write them with their vectors or say what that would change.

        Raises:
            InputError: if a row or the output is refused, before anything is encoded.
        """
        clock = Clock()
        self._check_cluster()
        filling = self._read()
        load = replace(self.load, device=self.devices[0]) if self.devices else self.load
        with filling.opened(self.model, load, self.cluster) as (encoder, pool):
            vectors = self._vectors(encoder, pool, filling)
            self._say_if_busy(vectors, filling)
            if self.updating.dry_run:
                results = filling.compare(vectors)
                facts = encoder.environment()
                return Result.of(Record("encode", self.model, {"dry_run": True}, results, facts, clock.seconds))
            with kept_if_interrupted(Record("encode", self.model), clock, filling.so_far):
                summary = filling.write(vectors)
            results = summary.to_dict(encoder)
            results["repeated_ids"] = filling.inputs.survey.repeated_ids + summary.repeated_ids
            protocol = self._protocol(vectors)
            revision = protocol.get("revision")
            ran_on = environment(encoder.backend.device, encoder.backend.precision, revision=revision)
            record = Record("encode", self.model, protocol, results, ran_on, clock.seconds)
        return Result.of(record, overview=_overview(results))

    def _check_cluster(self) -> None:
        """Refuse a cluster that is not there, or an output that it cannot make."""
        if self.cluster.ray is None:
            return
        if output_format(self.output) is not DIRECTORY:
            raise InputError("--ray makes shards, so it needs a directory output (-o without a suffix)")
        from sentcli.cluster.joining import check_address

        check_address(self.cluster.ray)

    def _read(self) -> Filling:
        """Read and check the rows."""
        name, text = self.prompt
        cutting = Cutting(self.passages, self.model, self.load, lambda spec: spec.chosen_prompt(name, text))
        return Filling.read(
            self.inputs,
            self.output,
            self.reading,
            self.writing,
            cutting,
            update=self.updating.update,
            input_format=self.reading.input_format,
        )

    def _vectors(self, encoder: SentenceEncoder, pool: Pool | None, filling: Filling) -> EncodedVectors:
        """Return what gives the rows their vectors."""
        encode = None
        if encoder.sent is not None:  # the answers of a model that is served are kept whatever ends the command
            from sentcli.stores.cached_encoder import CachedEncoder

            encode = CachedEncoder.of(encoder, self.load).encode_distinct
        smaller = self.compression
        settings = EncodeSettings(
            prompt=prompt_of_rows(encoder, *self.prompt),
            batch_tokens=self.batch_tokens,
            on_long=self.reading.on_long,
            length_options="--on-long, --max-length",
            compression=Compression(
                smaller.output_dtype, smaller.truncate_dim, renormalize=bool(encoder.spec.normalizes)
            ),
            passages=filling.passages,
            devices=self.devices,
            load=encoder.same_choices(self.load),
            encode=encode,
            pool=pool,
        )
        return EncodedVectors(encoder, settings)

    def _say_if_busy(self, vectors: EncodedVectors, filling: Filling) -> None:
        """Say what slows the machine down, if encoding takes long on it."""
        on_cpu = vectors.encoder.backend.device == "cpu" and vectors.settings.pool is None
        if on_cpu and filling.inputs.survey.rows >= TAKES_LONG:
            busy = busy_note(threads())
            if busy is not None:
                console.note(busy)

    def _protocol(self, vectors: EncodedVectors) -> dict[str, Any]:
        """Return every choice that decides the vectors."""
        reading, settings = self.reading, vectors.settings
        return {
            **vectors.encoder.describe(),
            **vectors.encoder.provenance(),
            "prompt": settings.prompt,
            "text_field": reading.text_field,
            "on_null": reading.on_null,
            "on_long": reading.on_long,
            **self.passages.protocol(settings.passages),
            "devices": self.devices or None,
            "ray": self.cluster.ray,
            **settings.compression.protocol(),
        }


def _overview(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is printed of the results of an encoding; a place that is None is a frame in memory."""
    overview = {}
    names = {"output": "output", "rows": "rows", "dimension": "dimensions", "rows_per_second": "rows/s"}
    for key, name in names.items():
        overview[name] = results[key] or "a frame"
    for key in ("duplicates", "empty", "truncated", "rows_skipped", "repeated_ids"):
        if results[key]:
            overview[key.replace("_", " ")] = results[key]
    return overview
