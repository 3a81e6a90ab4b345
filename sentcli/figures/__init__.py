"""Figures as data, and their drawing: PNG, SVG, the CSV behind them, and SVG within a page."""
