"""Pages for people: sections with tables and figures, written as HTML, Markdown or LaTeX."""
