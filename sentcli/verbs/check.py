"""``data check``: what a table of the user holds."""

from __future__ import annotations

from typing import Annotated

from annotated_doc import Doc

from sentcli.bounds import Holds, PairFields
from sentcli.command.declaration import Flag, verb
from sentcli.command.result import Clock, Record, Result
from sentcli.io.labelled_kinds import Kind
from sentcli.model.options import OptionalModel


@verb("check")
def check(
    file: Annotated[str, Holds.TEXT_FILE, Flag(metavar="FILE", positional=True)],
    pair_fields: PairFields = None,
    kind: Kind | None = None,
    model: OptionalModel = None,
    id_field: Annotated[
        str | None, Holds.WORDS, Doc("The column of the ids; default: id or _id, if there is one.")
    ] = None,
) -> Result:
    """Say what a table of your own holds, before it trains or scores a model.

    Its kind, columns and rows, empty cells, equal rows, repeated ids, equal texts
    with different labels, broken characters, markup of HTML, lengths, labels, and
    the commands that would use it. Lines that are no UTF-8 and values that do not
    fit are errors, as they are for these commands, and all are named at once.

    Args:
        file: A table: csv, tsv, jsonl, parquet, arrow, feather, xlsx or ods.
        kind: The kind of the table; default: told from the names of the columns and from all values.
        model: Lengths are in tokens of this model, against its maximum length; else in words.

    \b
    Examples:
      sentcli data check faq.csv
      sentcli data check pairs.xlsx --pair-fields question1,question2,is_duplicate -m minilm --json -
    """  # noqa: D301
    from sentcli.errors import joined_errors
    from sentcli.evaluation.table_check import check_table

    clock = Clock()
    checked = check_table(file, kind, pair_fields, model, id_field)
    protocol = {"pair_fields": pair_fields, "kind": kind}
    record = Record("data check", model or "", protocol, checked.to_dict(), seconds=clock.seconds)
    result = Result.of(record, [checked.show(file)])
    if checked.problems:
        result.show()
        refused = joined_errors(checked.problems)
        refused.outcome = result
        raise refused
    return result
