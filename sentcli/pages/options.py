"""The options of a page of scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from sentcli.bounds import Flag, Holds
from sentcli.pages.page import Style

if TYPE_CHECKING:
    from sentcli.pages.score_page import Choices


@dataclass(frozen=True)
class PageOptions:
    """The look of the page and the labels of models.

    Attributes:
        title: Title of the page.
        group: Models or files that are seeds of one system, shown as mean and deviation; NAME may have *.
        name: Label of a model or file.
        bold: Mark the best of each column.
        intervals: 95 % intervals; default: in HTML only.
        only: Tables of scores alone, for another document.
    """

    title: Annotated[str | None, Holds.WORDS] = None
    group: Annotated[list[str] | None, Holds.WORDS, Flag(metavar="LABEL=NAME")] = None
    name: Annotated[list[str] | None, Holds.WORDS, Flag(metavar="LABEL=NAME")] = None
    bold: bool = True
    intervals: bool | None = None
    only: Literal["scores"] | None = None

    def of_page(self) -> Choices:
        """Return the choices for the page of scores.

        Raises:
            InputError: if a group or a name is not of the form LABEL=NAME.
        """
        from sentcli.evaluation.systems import Pattern
        from sentcli.pages.score_page import Choices

        groups = [Pattern.parse("--group", value) for value in self.group or []]
        names = [Pattern.parse("--name", value) for value in self.name or []]
        return Choices(
            self.title,
            groups=tuple(groups),
            names=tuple(names),
            style=Style(self.bold, self.intervals),
            tables_only=self.only is not None,
        )
