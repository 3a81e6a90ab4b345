"""Files in, vectors on disk: what `sentcli encode` does.

Rows are read in blocks, texts that the shard has seen before are left out, what remains goes to one or several engines
that tokenise, pack and run it, and the results are written in the order of the input. A bounded number of blocks is
under way at any time, so memory does not depend on the number of rows.
"""

from sentcli.bulk.encode import EncodeSettings, EncodeSummary, Inputs, check_target, encode_files, read_inputs

__all__ = ["EncodeSettings", "EncodeSummary", "Inputs", "check_target", "encode_files", "read_inputs"]
