"""The demo: a queue on a real Kubernetes control plane, repartitioned while it runs, and every result compared.

``python -m examples.demo`` (or ``make demo``). The way through it: `__main__` -> `setting` (where it runs) ->
`scenario` (what happens) -> `checks` (what must hold) -> `report` (what is shown). `app` is what the workers run.
"""
