"""What every verb is made with: its declaration, its arguments, the options that verbs share, and the result.

**Declared once.** `@verb("sts-eval")` reads the signature of the function. A parameter has its type, bounds (`Ge`,
`Le`), and a `Flag` where the command line needs more, such as a short name. Rules between options stand on the `Flag`
as well (`needs`, `excludes`, also of single values such as `search=bm25`); `check_rules` in `command/arguments.py`
holds them for the command line and Python, so that what a verb checks itself are values. Its help text stands under
`Args` in the docstring, or in a `Doc` of the type where several verbs share it. A parameter whose type is a dataclass
is a group of options (`LoadOptions`, `ScoringOptions`), explained in the docstring of the class: the caller and the
command line see its fields, the function gets the dataclass. The decorator checks the arguments, writes `--json` and
`--report`, and leaves the console as it was. `docs/make_stub.py` writes the flat signature into `sentcli/__init__.pyi`
for editors. A command imports the module of its verb alone.

What the value of an argument is, where its type does not say it, is a member of `Holds` in its annotation: a file of
texts, words, an output, a model. From it follow what may be in memory, what writes to standard output, and what the
shell completes.

**Results** of all verbs are a frozen `Result` (`command/result.py`): the JSON objects (`Record`), sections with tables
and figures, which `show()` prints and `_repr_html_()` shows in a notebook, a verdict, an exit code. `Result.of` makes
one of a single JSON object, `Result.of_scores` of the scores of models with the parts that were found beside them.

Write `sentcli/verbs/NAME.py` with one function under `@verb("NAME")`, name it in `Sentcli.verbs` of `cli/app.py`,
which also sets the order in the help, and in `VERBS` of `sentcli/__init__.py`. Its docstring is the help text and ends
with examples. Heavy libraries are imported inside the function, because `sentcli --help` must be instant and a test
checks that. Then run `make docs`, which writes the stub, the page of help texts and the site, and add a page to `docs/`
and to the navigation in `zensical.toml`.

Groups of options stand with whom they steer, in the `options.py` of its package. A verb may leave out fields of a group
(`Group`), give them other defaults, or explain them anew in its own docstring.
"""
