"""Pages for people: sections with tables and figures, written as HTML, Markdown or LaTeX.

A `Figure` has functions by name, each of which draws a panel on matplotlib's axes in matplotlib's own words, and the
data frame behind it, which becomes the CSV: draw from the frame, so that both say the same. `pages/style.py` has
colours and the few helpers that several kinds need; `pages/figures.py` puts legends below the panels, writes PNG and
SVG, and for a page makes an SVG of each panel, turns styles into attributes, which the page's policy allows, and
colours into the page's variables, so that a dark page has its own. A page puts panels beside each other where there is
room and below each other on a phone. More than 3,000 points become dots of one path for each colour. `pages/names.py`
chooses what is shown of the names of models. Rows of the frame that have `panel`, `series`, `x` and `y` are told where
a pointer rests on them, by their `label` or else by their numbers: `pages/write.py` puts texts and places into a data
block that nothing executes, `templates/points.js` reads it.

`pages/write.py` writes a `Page` as HTML, Markdown or LaTeX; each has a template in `pages/templates/`, where the style
sheet of the figures is, too. `report` puts sections of the kinds on the page of scores: `analysis/model_sections.py`
and `analysis/run_sections.py`.
"""
