"""Where the store is: settings that the worker and every command share."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from headrace.errors import InvalidInput
from headrace.stores import Store, open_store


class ConnectionSettings(BaseSettings):
    """The connection, from the environment (``HEADRACE_REDIS_URL`` ...) unless given in code or on the command line.

    A URL with a password belongs into a file, not into the environment: Kubernetes mounts a Secret as one, and can
    change it while the process runs.
    """

    model_config = SettingsConfigDict(
        env_prefix="HEADRACE_",
        env_nested_delimiter="__",
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        # Values may hold a password.
        hide_input_in_errors=True,
    )

    redis_url: SecretStr = Field(SecretStr("redis://127.0.0.1:6379/0"), description="URL of the store.")
    redis_url_file: Path | None = Field(None, description="File that holds the URL; wins over redis_url.")
    prefix: str = Field("headrace", min_length=1, max_length=100, pattern=r"^[^{}\s]+$", description="Of every key.")

    def store_url(self) -> str:
        """Return the URL, read now if it lies in a file. It may hold a password: do not log it.

        Raises InvalidInput if the file cannot be read or is empty.
        """
        if self.redis_url_file is None:
            return self.redis_url.get_secret_value()
        try:
            url = self.redis_url_file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            problem = getattr(error, "strerror", None) or "is not text"
            raise InvalidInput(
                "redis_url_file", f"{self.redis_url_file} cannot be read ({problem})", "mount a file that holds the URL"
            ) from None
        if not url:
            raise InvalidInput("redis_url_file", f"{self.redis_url_file} is empty", "write the URL into it")
        return url

    def open_store(self) -> Store:
        """Return the store; no connection is made yet."""
        return open_store(self.store_url(), self.prefix)


def explain(error: ValidationError) -> list[str]:
    """Return one line per problem of a pydantic ValidationError: the environment variable and what is wrong.

    Values are left out, since they may hold a password.
    """
    lines = []
    for problem in error.errors(include_input=False, include_url=False, include_context=False):
        name = "__".join(str(part) for part in problem["loc"]).upper()
        message = problem["msg"].removeprefix("Value error, ")
        lines.append(f"HEADRACE_{name}: {message}" if name else message)
    return lines
