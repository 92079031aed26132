"""``python -m headrace`` is the command ``headrace``."""

from headrace.cli.main import app

app(prog_name="headrace")
