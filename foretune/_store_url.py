"""The URL of a store on a server, and what of it may be told.

A password may stand in front of the host or among the parameters. Neither ever leaves this module
but for the driver. URLs in which a password cannot be told from the rest are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from foretune.errors import BadInputError

SCHEMES = ("postgresql", "postgres")
HIDDEN = "***"
_SCHEME = re.compile(rf"(?:{'|'.join(SCHEMES)})(?:\+\w+)?://", re.IGNORECASE)
_URL = re.compile(rf"({_SCHEME.pattern})(.*)", re.DOTALL | re.IGNORECASE)
_PARAMETER = re.compile(r"([?&]\w*password=).*", re.DOTALL | re.IGNORECASE)
_NO_PORT = re.compile(r"[^/?#:\s\[]*:\d*[^\d/?#,\s'\"]")
"""Begins with a host and what is no port: whoever forgot the @ and the host."""
_TOLD = ("host", "port", "dbname", "user", "sslmode", "target_session_attrs", "connect_timeout")
"""Parameters that may be told."""
_READS = "postgresql://USER@HOST/DATABASE, with the password in PGPASSWORD or ~/.pgpass"


@dataclass(frozen=True)
class StoreURL:
    """A URL in parts.

    Attributes:
        name: The URL without its password, and without parameters that could be secret.
        parameters: What the driver connects with, by libpq's names.
        secrets: Texts that must not be told.
    """

    name: str
    parameters: Mapping[str, Any] = field(repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def read(cls, url: str) -> StoreURL:
        """Takes a URL apart.

        Raises:
            BadInputError: It cannot be read; the message does not repeat it.
        """
        import psycopg
        import psycopg.conninfo

        scheme, _, rest = url.partition("://")
        if scheme not in SCHEMES:
            raise BadInputError(f"the URL of a store reads {_READS}, but this one begins otherwise")
        authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
        if rest.count("@") != authority.count("@") or rest.count("@") > 1:
            raise BadInputError(
                "the URL of a store has one @ at most, between user and host: write @ / ? # : in a "
                f"password as %40 %2F %3F %23 %3A, or give {_READS}"
            )
        user, at, host = authority.rpartition("@")
        ports = re.sub(r"\[[^\]]*\]", "", host).split(",")
        if not all(re.fullmatch(r"[^:]*(?::\d*)?", each) for each in ports):
            raise BadInputError(f"the port in the URL of a store is a number: it reads {_READS}")
        try:
            given = psycopg.conninfo.conninfo_to_dict(url)
        except psycopg.Error:
            # What libpq says here repeats parts of the URL.
            raise BadInputError(
                f"the URL of a store cannot be read: it reads {_READS}; a % in it is written %25"
            ) from None
        account, _, written = user.partition(":")
        path, _, query = rest[len(authority) :].partition("?")
        told = [each for each in query.split("&") if each.partition("=")[0] in _TOLD]
        hidden = {written, unquote(written)}
        hidden |= {str(value) for key, value in given.items() if "password" in key.lower()}
        name = f"postgresql://{account}{at}{host}{path}{'?' if told else ''}{'&'.join(told)}"
        return cls(name, given, tuple(sorted(filter(None, hidden), key=len, reverse=True)))

    def without_secrets(self, text: str) -> str:
        """A text in which no secret stands any more."""
        for secret in self.secrets:
            text = text.replace(secret, HIDDEN)
        return text


def without_credentials(text: str) -> str:
    """Any text without what URLs of stores in it must not tell.

    Before → after: ``"no postgresql://me:secret@host/db"`` → ``"no postgresql://***@host/db"``.
    More may be hidden than need be: a password can hold anything.
    """
    return _URL.sub(_hidden, text)


def _hidden(match: re.Match[str]) -> str:
    """A user alone may be told, and parameters up to one that is a password."""
    scheme, rest = match.groups()
    user, at, place = rest.rpartition("@")
    if _PARAMETER.search(user):
        # The password has an @ itself, and goes on behind it.
        return f"{scheme}{HIDDEN}"
    if at and not re.fullmatch(r"[^:/?#@\s]*", user):
        user = HIDDEN
    if not at and _NO_PORT.match(place):
        return f"{scheme}{HIDDEN}"
    return scheme + user + at + _PARAMETER.sub(rf"\1{HIDDEN}", place)


def without_password(word: str) -> str:
    """An argument of the command line without the password of a URL in it.

    Before → after: ``"--store=postgresql://me:secret@host/db"`` →
    ``"--store=postgresql://me@host/db"``. Other words stay as they are.
    """
    begin = _SCHEME.search(word)
    if begin is None:
        return word
    try:
        return word[: begin.start()] + StoreURL.read(word[begin.start() :]).name
    except (BadInputError, ImportError):
        return without_credentials(word)
