"""``python -m sentcli``."""

from sentcli.cli import main

main()
