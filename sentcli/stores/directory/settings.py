"""What manifests keep of how their vectors were made, so that nobody continues them with others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sentcli.encoder.vector_facts import VectorFacts
from sentcli.errors import InputError

if TYPE_CHECKING:
    from sentcli.model.identity import EncoderIdentity

SAME_VECTORS = ("precision", "output_dtype", "on_long")
"""The settings of a directory besides its `VectorFacts` in which it has to be like what is written now."""


def check_same_model(output: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to continue a directory with a model that has changed under the same name and files.

    Raises:
        InputError: if it makes other vectors of the fixed texts than when the directory was begun.
    """
    kept = VectorFacts.read(output, before).canaries
    made = VectorFacts.read(output, now).canaries
    if kept is not None and made is not None:
        kinship, sentence = kept.compare(made)
        if kinship not in ("equal", "rounding", "another precision"):
            raise InputError(f"{output} was begun with a model that made other vectors: {sentence}")


def require_same_vectors(name: str, before: dict[str, Any], now: dict[str, Any], identity: EncoderIdentity) -> None:
    """Refuse to update a directory whose vectors were made otherwise.

    Args:
        name: of the directory.
        before: its settings.
        now: those of what would be written.
        identity: of the model that encodes what is new.

    Raises:
        InputError: which names what differs.
    """
    differences = vector_differences(name, before, now, identity)
    if differences:
        how = "; ".join(differences)
        raise InputError(
            f"{name} was made otherwise: {how}. Give what is there; sentcli migrate moves it to another model, and "
            "--overwrite encodes all anew"
        )
    check_same_model(name, before, now)


def vector_differences(name: str, before: dict[str, Any], now: dict[str, Any], identity: EncoderIdentity) -> list[str]:
    """Return in what the settings of a directory differ from those of the vectors that would be written.

    Args:
        name: of the directory.
        before: its settings.
        now: those of what would be written.
        identity: of the model that would write it.
    """
    if identity.is_named(str(before.get("model_fingerprint"))):
        before = {**before, "model_fingerprint": now["model_fingerprint"]}
    differences = VectorFacts.read(name, before).differences(VectorFacts.read(name, now))
    for key in SAME_VECTORS:
        if before.get(key) != now.get(key):
            differences.append(f"{key} {before.get(key)!r} there, {now.get(key)!r} here")
    return differences
