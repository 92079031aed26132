"""A Django view that enqueues, in one file: ``python -m django runserver --settings examples.django_view``.

It needs ``HEADRACE_REDIS_URL``. The worker is a process of its own: ``headrace worker run examples.handlers:app --queue
greetings``.
"""

import os
from functools import cache, partial

from django.db import transaction
from django.http import Http404, HttpRequest, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from headrace import SyncProducer

# ---- settings.py

SECRET_KEY = os.environ.get("SECRET_KEY", "an example has no secrets")
ROOT_URLCONF = __name__
ALLOWED_HOSTS = ["127.0.0.1", "testserver"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
DEBUG = True

# ---- views.py


@cache
def producer() -> SyncProducer:
    """Made at the first request, hence after the server has forked: one per process, shared by its threads."""
    return SyncProducer(os.environ["HEADRACE_REDIS_URL"])


@csrf_exempt
@require_POST
@transaction.atomic
def ask(request: HttpRequest) -> JsonResponse:
    name, delay = request.POST["name"], float(request.POST.get("delay", 0))
    job_id = f"greet:{name}"  # an id of ours, so that asking twice greets once
    enqueue = partial(producer().enqueue, "greetings", "greet", {"name": name}, id=job_id, delay=delay)
    # Only when all that belongs to it is committed: a worker might be faster, and would not see it yet.
    transaction.on_commit(enqueue)
    if name == "nobody":
        raise Http404("there is nobody to greet")  # rolled back, and nothing is enqueued
    return JsonResponse({"id": job_id}, status=202)


# ---- urls.py

urlpatterns = [path("greetings", ask)]
