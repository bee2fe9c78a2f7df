"""``python -m trainvitals`` is the command ``trainvitals``."""

from trainvitals.cli import main

main()
