"""Who a token of an OpenID provider or a certificate says calls; needs no library of either."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final

PREFIX: Final = "oidc:"
"""What the names of principals from tokens begin with, so that no token can name a principal with API keys."""


NAME: Final = re.compile(r"[!#-&(-;=?-\[\]-~]{1,200}")
"""What follows: printable ASCII without quotes, backslashes and angle brackets, for it becomes an author in Git."""

CERTIFICATE_PREFIX: Final = "cert:"
"""What the names of principals from client certificates begin with, so that none can name another kind of principal."""

CERTIFICATE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}")
"""What follows: the common name of the certificate's subject."""

EMAIL: Final = re.compile(r"[^\s<>@]{1,100}@[^\s<>@]{1,100}")
"""An address that a principal may have."""


@dataclass(frozen=True, slots=True)
class Bearer:
    """Who a token or certificate says calls.

    Attributes:
        name: The name of the principal.
        email: The address that the provider has verified; empty if there is none.
        expires_at: When the token or certificate ends.
    """

    name: str
    email: str
    expires_at: datetime
