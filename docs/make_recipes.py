"""Write docs/recipes.md from models/recipes: ``python docs/make_recipes.py``, which docs/make_site.py runs."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sentcli.methods import METHODS, Method
from sentcli.methods.recipes import Recipe, load_recipe, recipe_names

INTRODUCTION = """# Recipes

After this page you can train as a paper did, with every setting from its source, and change a recipe or write one.

## Train as a paper did

A recipe is a file that holds the training of one paper on one start model: the method, the model, every setting with
the place that it comes from, and the scores that were published for it.

```bash
sentcli train --recipe micse-bert-base --data wiki1m.txt -o model --eval-data SentEval/data/downstream
sentcli sts-eval -m model --data SentEval/data/downstream
```

The text is not part of a recipe. `--data` says which one to train on; the table below says what the authors took. At
the end of the run the published scores are printed. They were reached with the authors' code, not with sentcli. Runs of
these methods can differ by a point or two through the seed alone, so train with several seeds before you compare.

## Change a recipe

Options and `--set` win over the recipe. `-m` may replace the model, and `--pooling` the pooling. The method is fixed.
Another model keeps the pooling of the recipe, unless you say otherwise; a recipe that names none leaves it to `auto`.

```bash
sentcli train --recipe simcse-bert-base --data sentences.txt -o smaller --batch-size 32 --max-steps 2000
sentcli train --recipe micse-bert-base -m minilm --pooling mean --data sentences.txt -o other --set ami.weight=1e-3
```

A published score belongs to the recipe as it is. A changed one is a new experiment.

## Write a recipe of your own

Give `--recipe` the path of a TOML file. `method` and `model` are required. Settings have the names that `--set` takes;
names with a dot or a plus are quoted. A setting is a value, or a value with its source.

```toml
title = "Our forum posts"
method = "simcse"
model = "minilm"
pooling = "mean"
data = "posts of the last two years"
note = "The batch is what fits into the memory of our machine."

[settings]
batch_size = { value = 48, source = "tried 32, 48 and 64" }
learning_rate = 1e-5
"objectives+" = "ami"
"ami.weight" = 1e-3

[published]
"STS-B dev" = { value = 80.0, source = "our run of May" }
```

```bash
sentcli train --recipe forum.toml --data posts.txt -o forum-model
```

`stage` is for methods with several stages. `limit = 1000` trains on 1,000 sentences of `--data`, and `subset_seed`
draws them: a number, or `"seed"` for the seed of the training. `title`, `data`, `note` and `[published]` are for
people: nothing is computed from them.
"""

SOURCES = """
In the sources, "code" is what the authors published, "script" a shell script in it and "README" its description.
Tables, sections and code are those of the paper that the recipe is for, where no other is named. "sentcli" marks a
choice made here, where neither paper nor code gives a value or theirs is impossible. A paper's name alone means that
the paper has the value; the page or table was not noted. Scores are times 100.
"""

PAGES = {"angle": "cosent"}
"""The pages of methods that have none of their own."""


def page() -> str:
    """Return the page."""
    recipes = [load_recipe(name) for name in recipe_names()]
    rows = (
        (f"[{r.name}](#{anchor(r.name)})", method(r), f"`{r.model}`", r.data, score(r, "STS average")) for r in recipes
    )
    overview = table(("recipe", "method", "model", "data", "published STS average"), rows)
    about = ((f"[{name}](methods/{PAGES.get(name, name)}.md)", m.title, terms(m)) for name, m in METHODS.items())
    methods = table(("method", "paper", "terms of the loss"), about)
    lists = f"## All recipes\n\n{overview}{SOURCES}\n## All methods\n\n{methods}"
    parts = [f"{INTRODUCTION}\n{lists}\n## Recipe by recipe\n"]
    return "\n".join([*parts, *(section(recipe) for recipe in recipes)])


def section(recipe: Recipe) -> str:
    """Return one recipe's section."""
    pooling = f", pooling `{recipe.pooling}`" if recipe.pooling else ""
    head = f"{recipe.title}. Method {method(recipe)}, model `{recipe.model}`{pooling}. Data: {recipe.data}."
    if recipe.limit is not None:
        drawn = {None: "the first", "seed": "drawn by the seed of the training"}
        how = drawn.get(recipe.subset_seed, f"drawn by the seed {recipe.subset_seed}")
        head += f" Trains on {recipe.limit:,} sentences of `--data`, {how}."
    parts = [f"### {recipe.name}", head, recipe.note]
    if recipe.settings:
        rows = ((f"`{key}`", shown(s.value), s.source) for key, s in recipe.settings.items())
        parts.append(table(("setting", "value", "source"), rows).strip())
    if recipe.published:
        scores = ((key, score(recipe, key), s.source) for key, s in recipe.published.items())
        parts.append(table(("published", "score", "source"), scores).strip())
    return "\n\n".join(part for part in parts if part) + "\n"


def terms(method: Method) -> str:
    """Return the terms of a method's loss; none if it is fitted."""
    return ", ".join(f"`{name}`" for name in method.objectives) or "none, it is not trained"


def table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a table."""
    lines = [header, ("---",) * len(header), *(tuple(cell.replace("|", "\\|") for cell in row) for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def method(recipe: Recipe) -> str:
    """Return the method, with its stage where it has one."""
    return f"`{recipe.method}`" + (f", stage `{recipe.stage}`" if recipe.stage else "")


def score(recipe: Recipe, key: str) -> str:
    """Return a published score with two decimals, or nothing."""
    return f"{recipe.published[key].value:.2f}" if key in recipe.published else ""


def shown(value: Any) -> str:
    """Return a value as ``--set`` takes it: true, 1,3,5, 3e-5."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(map(str, value))
    return re.sub(r"e-0", "e-", f"{value:g}") if isinstance(value, float) else str(value)


def anchor(heading: str) -> str:
    """Return what a link to a heading ends with."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


if __name__ == "__main__":
    (Path(__file__).parent / "recipes.md").write_text(page(), "utf-8")
