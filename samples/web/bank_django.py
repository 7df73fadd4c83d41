"""
The bank's accounts over Django, with views that are plain functions.

    headrace broker --data var/broker
    headrace run samples.bank:app
    python -m samples.web.bank_django runserver 127.0.0.1:8000

One file holds settings, routes and views, as small Django projects do; in a project of yours the bus stands in a
module that the views import. Uses the bank's commands and read models; runs nothing of the bank itself.
"""

import json
import os
import sys

from django.conf import settings
from django.core.management import execute_from_command_line
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from headrace import Command, Settings
from headrace.errors import CommandRefused, CommandTimeout
from headrace.synchronous import SynchronousBus
from samples.bank import app
from samples.bank.accounts import Deposit, OpenAccount
from samples.bank.read_models import balances

if not settings.configured:
    settings.configure(
        ROOT_URLCONF=__name__,
        ALLOWED_HOSTS=["localhost", "127.0.0.1"],
        SECRET_KEY=os.environ.get("DJANGO_SECRET_KEY", "for this sample alone"),
    )

# One for all threads; it connects at the first call, and again after a fork.
bus = SynchronousBus(
    app,
    Settings(
        broker=os.environ.get("HEADRACE_BROKER", "127.0.0.1:9876"),
        read_models=os.environ.get("HEADRACE_READ_MODELS", "sqlite:///var/read.db"),
    ),
)


def _done(request: HttpRequest, command: Command) -> HttpResponse:
    """Executes a command; a rejection is 409, an outage 503 with the same key to try again."""
    key = request.headers["Idempotency-Key"]
    try:
        result = bus.execute(command, command_id=key, wait_for=[balances])
    except (CommandTimeout, CommandRefused) as error:
        return JsonResponse({"sentence": str(error)}, status=503)
    if not result.ok:
        body = {"error": result.error, "sentence": result.sentence}
        return JsonResponse(body, status=409 if result.status == "rejected" else 500)
    return JsonResponse({"version": result.version, "value": result.value})


# Clients are programs, which send no cookies; views for a browser's forms keep Django's protection.
@csrf_exempt
@require_POST
def open_account(request: HttpRequest, name: str) -> HttpResponse:
    """Opens an account."""
    return _done(request, OpenAccount(account_id=name, owner=json.loads(request.body)["owner"]))


@csrf_exempt
@require_POST
def deposit(request: HttpRequest, name: str) -> HttpResponse:
    """Pays in; the key makes the payment unique."""
    key = request.headers["Idempotency-Key"]
    amount = json.loads(request.body)["amount"]
    return _done(request, Deposit(account_id=name, transaction_id=key, amount=amount))


@require_GET
def show(_request: HttpRequest, name: str) -> HttpResponse:
    """Shows the row of an account."""
    row = bus.read(balances).get(name)
    if row is None:
        return JsonResponse({"sentence": f"there is no account {name}"}, status=404)
    return JsonResponse(row.model_dump())


urlpatterns = [
    path("accounts/<str:name>", show),
    path("accounts/<str:name>/open", open_account),
    path("accounts/<str:name>/deposits", deposit),
]

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
