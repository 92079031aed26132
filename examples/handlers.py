"""The smallest application: ``headrace worker run examples.handlers:app --queue greetings``.

Without ``--queue`` a worker serves the queue ``default``; the examples enqueue into ``greetings``.
"""

from typing import Any

from headrace import App, Context

app = App()


@app.handler("greet")
async def greet(ctx: Context, payload: dict[str, Any]) -> None:
    print(f"Hello {payload['name']}! (job {ctx.job.id}, version {ctx.job.version})", flush=True)
