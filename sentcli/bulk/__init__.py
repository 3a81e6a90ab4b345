"""Encode files to vectors on disk, for `sentcli encode`.

Rows are read in blocks. Texts that the shard had before are left out, and the others go to an engine, which tokenises,
packs and runs them in one or several processes. The results are written in the order of the input. The number of blocks
in memory is bounded, so memory does not depend on the number of rows.
"""

from sentcli.bulk.encode import EncodeSummary, encode_files, open_encoder, store_files
from sentcli.bulk.engine import EncodeSettings, EncodeTexts, parse_devices
from sentcli.bulk.files import Inputs, check_target, manifest_of, read_checked, read_inputs

__all__ = [
    "EncodeSettings",
    "EncodeSummary",
    "EncodeTexts",
    "Inputs",
    "check_target",
    "encode_files",
    "manifest_of",
    "open_encoder",
    "parse_devices",
    "read_checked",
    "read_inputs",
    "store_files",
]
