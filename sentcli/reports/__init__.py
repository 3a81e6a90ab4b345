"""Pages of results for people: HTML, Markdown and LaTeX from the JSON of the evaluation commands.

`runs` reads the JSON, `collect` makes a `page.Page` of it, and `html`, `markdown` and `latex` each write that page.
"""
