"""Options of Redis URLs: each is named when it is wrong, and nothing that may be a secret is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import InvalidInput
from headrace.redis.options import read_options
from headrace.redis.urls import SCHEMES, credentials
from headrace.stores import REDIS_SCHEMES, open_store
from headrace.stores.redis import RedisStore

SECRET = "hunter2"


def refused(url: str) -> str:
    with pytest.raises(InvalidInput) as caught:
        open_store(url)
    assert SECRET not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        (
            "redis://:hunter2@one/0?ssl_ca_certs=/x",
            "has ssl_ca_certs without TLS; begin it with rediss:// or",
        ),
        ("redis+sentinel://one/jobs?ssl_certfile=x", "has ssl_certfile without TLS; begin it with rediss+sentinel://"),
        (
            "redis://one?timeout=5",
            "has an unknown option timeout; a URL such as",
        ),
        (
            "rediss://one?tls=yes",
            "takes with this scheme: ssl_ca_certs, ssl_certfile, ssl_keyfile, ssl_cert_reqs,",
        ),
        (
            "redis+cluster://one?hunter2%21=1",
            "has an unknown option; a URL such as redis://host:6379/0 takes with this scheme: no options",
        ),
        ("redis://one?sentinel_password=hunter2", "has an unknown option sentinel_password"),
        ("rediss://one?ssl_ca_certs=/no/such.pem", "names a file in ssl_ca_certs that cannot be read: /no/such.pem"),
        ("rediss+cluster://one?ssl_ca_certs=/no/such.pem", "ssl_ca_certs that cannot be read: /no/such.pem"),
        ("rediss+sentinel://one/jobs?ssl_ca_certs=/no/such.pem", "ssl_ca_certs that cannot be read: /no/such.pem"),
        ("rediss://one?ssl_check_hostname=maybe", "has a wrong ssl_check_hostname; give true or false"),
        ("rediss://one?ssl_cert_reqs=optional", "has a wrong ssl_cert_reqs; give required or none"),
        ("unix:///run/redis.sock?db=x", "has a database that is not a number; give db=NUMBER"),
        ("redis://one?db=3", "has an unknown option db"),
        ("unix://run/redis.sock", "has no path of a socket; use unix:///path/of/socket, with three slashes"),
        ("unix://:hunter2@", "has no path of a socket"),
        ("redis://:hun%ffter2@one", "has percent-encoded bytes in user or password that are no UTF-8"),
        ("redis+cluster://hunter2%ff@one", "has percent-encoded bytes in user or password that are no UTF-8"),
        ("redis://:hunter2\n@one", "has a line break or another control character in it"),
        ("redis://:hunt\ter2@one", "has a line break or another control character in it"),
        ("redis://:hun/ter2@one", "cannot be parsed"),
        ("redis://:hun?ter2@one", "cannot be parsed"),
        ("redis://:hun#ter2@one", "cannot be parsed"),
        ("redis://:hunter2[@one", "cannot be parsed"),
        ("redis:hunter2@one", "cannot be parsed"),
        ("redis://one:hunter2", "has a port that is not a number"),
        ("redis://one/hunter2", "has a database that is not a number"),
        ("redis+sentinel://one/jobs/hunter2", "has a database that is not a number"),
        ("redis+cluster://:hunter2@one/jobs", "names a database"),
    ],
)
def test_a_wrong_option_is_named(url: str, told: str) -> None:
    assert told in refused(url)


def test_certificate_and_key_belong_together(tmp_path: Path) -> None:
    (tmp_path / "a.crt").write_text("x")
    assert "one of ssl_certfile and ssl_keyfile; give both" in refused(
        f"rediss://one?ssl_certfile={tmp_path / 'a.crt'}"
    )


def test_every_scheme_that_is_opened_is_one_that_is_parsed() -> None:
    assert set(REDIS_SCHEMES) == set(SCHEMES)
    for scheme in ("", "http", "memory"):
        with pytest.raises(InvalidInput):
            RedisStore(f"{scheme}://one")


def test_a_plus_in_an_option_is_a_plus_as_it_is_in_a_password_in_front_of_the_host() -> None:
    options = read_options("sentinel_password=a+b%2B%26%20c", tls=False, sentinel=True, socket=False)
    assert options.sentinel == {"password": "a+b+& c"}
    assert credentials("us+er:a+b%2B") == {"username": "us+er", "password": "a+b+"}


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("unix://user:hunter2@/run/redis.sock?db=3", "/run/redis.sock"),
        (
            "redis+sentinel://:hunter2@one/jobs/2?sentinel_username=s&sentinel_password=hunter2",
            "jobs/2 of sentinels one:26379",
        ),
        ("rediss://user:hunter2@one?ssl_cert_reqs=none", "one:6379/0"),
    ],
)
def test_what_is_right_is_taken_and_shows_no_secret(url: str, shown: str) -> None:
    assert repr(open_store(url)) == f"RedisStore({shown!r}, prefix='headrace')"
