"""`python -m service` is the `splinecnn` command."""

from service.cli import main

main()
