"""Pages for people: tables and figures as HTML, Markdown and LaTeX."""
