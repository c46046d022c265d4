"""Tokens of an OpenID provider prove who calls; forged, expired and foreign ones prove nothing."""

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from integration.http_servers import running
from memotree_storage.errors import MemoTreeError
from memotree_storage.postgres.database import Database

from memotree.client import Client, InvalidArgumentError, NotFoundError, UnauthenticatedError
from memotree.identity import provider as provider_module
from memotree.identity.access import Access
from memotree.identity.errors import ProviderUnavailableError, TokenRefusedError
from memotree.identity.provider import Provider
from memotree.identity.tokens import Tokens
from memotree.request.principal import Principal
from memotree.server.announcement import Announcement
from memotree.settings import load_settings

pytestmark = pytest.mark.requirement("SERVE-3")

AUDIENCE = "https://memory.example.org/mcp"


@cache
def rsa_key(name: str = "first") -> rsa.RSAPrivateKey:
    """A key of this name; to make one takes longer than the tests of it."""
    assert name
    return rsa.generate_private_key(65_537, 2048)


@dataclass
class Login:
    """An OpenID provider on loopback."""

    key: rsa.RSAPrivateKey = field(default_factory=rsa_key)
    key_id: str = "first"
    url: str = ""
    more: list[dict[str, Any]] = field(default_factory=list)
    down: bool = False
    asked: int = 0

    def documents(self) -> dict[str, Any]:
        own = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
        return {
            "/.well-known/openid-configuration": {"issuer": self.url, "jwks_uri": f"{self.url}/keys"},
            "/keys": {"keys": [own | {"kid": self.key_id, "use": "sig", "alg": "RS256"}, *self.more]},
        }

    def token(
        self, algorithm: str = "RS256", key: Any = None, header: dict[str, Any] | None = None, **claims: Any
    ) -> str:
        now = int(time.time())
        usual = {"iss": self.url, "aud": AUDIENCE, "sub": "ada", "exp": now + 600, "iat": now}
        given = {name: value for name, value in (usual | claims).items() if value is not None}
        return jwt.encode(given, key or self.key, algorithm, headers={"kid": self.key_id} | (header or {}))


@pytest.fixture(scope="module")
def login() -> Iterator[Login]:
    with answering() as made:
        yield made


@pytest.fixture
def own_login() -> Iterator[Login]:
    """A provider that a test may change."""
    with answering() as made:
        yield made


@contextmanager
def answering() -> Iterator[Login]:
    """A provider that answers."""
    made = Login()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the name that the base class calls
            made.asked += 1
            found = None if made.down else made.documents().get(self.path)
            self.send_response(200 if found else 503)
            self.end_headers()
            with suppress(ConnectionError):
                self.wfile.write(json.dumps(found).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield made
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def served(login: Login, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Announcement, Client]]:
    folder = tmp_path_factory.mktemp("tokens") / "data"
    environment = {
        "MEMOTREE_AUTHENTICATION": "keys",
        "MEMOTREE_OIDC_ISSUER": login.url,
        "MEMOTREE_OIDC_AUDIENCE": AUDIENCE,
    }
    with running(folder, **environment) as (announced, _):
        admin = Client(announced.address, key=(folder / "admin.key").read_text().strip())
        admin.create_workspace("notes")
        admin.put_principal("oidc:ada")
        admin.grant_role("oidc:ada", "WRITER", workspace="notes")
        admin.put_principal("admin-two")
        yield announced, admin
        admin.close()


def test_a_user_of_the_provider_has_the_roles_of_its_principal(
    served: tuple[Announcement, Client], login: Login
) -> None:
    announced, _ = served
    token = login.token(email="ada@example.org", email_verified=True)
    with Client(announced.address, key=token) as client:
        assert client.principal().name == "oidc:ada"
        made = client.workspace("notes").remember("Written with a token.")
        author = client.workspace("notes").show(made.commit_id).commit.author
        assert (author.name, author.email) == ("oidc:ada", "ada@example.org")
    tools = httpx2.get(f"{announced.url}/api/tools", headers={"authorization": f"Bearer {token}"})
    assert tools.status_code == 200
    with Client(announced.address, key=login.token(exp=10**15)) as client:
        assert client.principal().name == "oidc:ada", "the end may be far away"


def test_a_user_without_roles_sees_nothing_and_no_token_names_a_principal_with_keys(
    served: tuple[Announcement, Client], login: Login
) -> None:
    announced, _ = served
    for name in ("admin", "admin-two", "ben"):
        with Client(announced.address, key=login.token(sub=name)) as client:
            assert client.principal().name == f"oidc:{name}"
            assert client.principal().grants == ()
            assert list(client.workspaces()) == []
            with pytest.raises(NotFoundError):
                client.workspace("notes").info()


def test_a_token_makes_no_key_that_outlives_it(served: tuple[Announcement, Client], login: Login) -> None:
    announced, _ = served
    with Client(announced.address, key=login.token()) as client:
        for ttl in (None, timedelta(days=1)):
            with pytest.raises(InvalidArgumentError):
                client.create_key(label="forever", ttl=ttl)
        made = client.create_key(label="brief", ttl=timedelta(minutes=5))
    with Client(announced.address, key=made.key) as client:
        assert client.principal().name == "oidc:ada"


async def test_an_address_is_that_of_the_user_only_if_the_provider_has_verified_it(login: Login) -> None:
    tokens = Tokens(Provider(login.url), AUDIENCE, "sub")
    for address, verified in (
        *(("ada@example.org", each) for each in (None, False, "true", 1)),
        *((each, True) for each in ("Ada <ada@example.org>", "ada@example.org\n", 5, None)),
    ):
        bearer = await tokens.bearer(login.token(email=address, email_verified=verified))
        assert bearer.email == "", (address, verified)


async def test_a_call_that_waited_past_the_end_of_its_token_is_refused(own_login: Login) -> None:
    tokens = Tokens(Provider(own_login.url), AUDIENCE, "sub")
    bearer = await tokens.bearer(own_login.token(exp=int(time.time()) - 15))  # within the leeway
    assert bearer.expires_at > datetime.now(UTC) - timedelta(seconds=30)
    over = Principal(bearer.name, expires_at=datetime.now(UTC) - timedelta(seconds=1))
    with pytest.raises(TokenRefusedError):
        Access(Database("postgresql://nobody.invalid/none")).renewed(over)


def forged(login: Login) -> dict[str, str]:
    """Tokens that must prove nothing."""
    other = rsa_key("other")
    public = jwt.algorithms.RSAAlgorithm.to_jwk(login.key.public_key())

    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    claims = {"iss": login.url, "aud": AUDIENCE, "sub": "ada", "exp": int(time.time()) + 600}
    unsigned = f"{part({'alg': 'none', 'kid': 'first'})}.{part(claims)}."
    symmetric = f"{part({'alg': 'HS256', 'kid': 'first'})}.{part(claims)}"
    mac = hmac.new(public.encode(), symmetric.encode(), hashlib.sha256).digest()
    now = int(time.time())
    good = login.token()
    head, _, signature = good.split(".")
    return {
        "signed by somebody else": login.token(key=other),
        "no signature": unsigned,
        "spelled None": unsigned.replace(part({"alg": "none", "kid": "first"}), part({"alg": "None", "kid": "first"})),
        "a public key as a secret": f"{symmetric}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}",
        "expired": login.token(exp=now - 100),
        "without an end": login.token(exp=None),
        "not valid yet": login.token(nbf=now + 3600),
        "for another server": login.token(aud="https://other.example.org"),
        "for nobody": login.token(aud=None),
        "of another provider": login.token(iss="https://evil.example.org"),
        "an unknown key": login.token(header={"kid": "unknown"}),
        "another algorithm of the key": login.token("RS512"),
        "an algorithm of another kind of key": login.token("ES256", key=ec.generate_private_key(ec.SECP256R1())),
        "its own key in the header": login.token(key=other, header={"jwk": json.loads(public), "kid": "first"}),
        "a key by URL": login.token(key=other, header={"jku": f"{login.url}/keys"}),
        "changed claims": f"{head}.{part(claims | {'sub': 'admin'})}.{signature}",
        "cut": good[:-4],
        "a name with a line break": login.token(sub="ada\nadmin"),
        "a name with an address": login.token(sub="ada <admin@example.org>"),
        "an empty name": login.token(sub=""),
        "no name": login.token(sub=None),
        "text": "not.a.token",
        "nothing": "..",
        "much": "a" * 8_000,
    }


def test_forged_tokens_prove_nothing(served: tuple[Announcement, Client], login: Login) -> None:
    announced, _ = served
    with httpx2.Client(base_url=announced.url) as http:
        for name, token in forged(login).items():
            client = Client(announced.address, key=token, attempts=1)
            with client, pytest.raises(UnauthenticatedError) as caught:
                client.principal()
            assert caught.value.reason in {"TOKEN_REFUSED", "KEY_REFUSED"}, name
            over_http = http.get("/api/tools", headers={"authorization": f"Bearer {token}"})
            assert over_http.status_code == 401, name
            assert 'error="invalid_token"' in over_http.headers["www-authenticate"]


def test_clients_of_mcp_find_the_provider(served: tuple[Announcement, Client], login: Login) -> None:
    announced, _ = served
    refused = httpx2.post(f"{announced.url}/mcp", json={})
    assert refused.status_code == 401
    metadata = "https://memory.example.org/.well-known/oauth-protected-resource/mcp"
    assert f'resource_metadata="{metadata}"' in refused.headers["www-authenticate"]
    found = httpx2.get(f"{announced.url}/.well-known/oauth-protected-resource/mcp").json()
    assert found["resource"] == AUDIENCE
    assert [url.rstrip("/") for url in found["authorization_servers"]] == [login.url]


# --- The keys of the provider -----------------------------------------------------------------------------------------


class Clock:
    """Stands in for the time of the provider's cache."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(provider_module, "time", made)
    return made


async def test_keys_are_asked_for_rarely_and_used_while_the_provider_is_away(own_login: Login, clock: Clock) -> None:
    tokens = Tokens(Provider(own_login.url), AUDIENCE, "sub")
    own_login.asked = 0
    for _ in range(5):
        await tokens.bearer(own_login.token())
    assert own_login.asked == 2  # the metadata, and the keys
    for number in range(50):  # a stranger who sends tokens with keys that do not exist
        with pytest.raises(TokenRefusedError):
            await tokens.bearer(own_login.token(header={"kid": f"unknown {number}"}))
    assert own_login.asked == 2
    own_login.key, own_login.key_id = rsa_key("second"), "second"
    clock.now += 31
    assert (await tokens.bearer(own_login.token())).name == "oidc:ada"
    assert own_login.asked == 4
    own_login.down = True
    clock.now += 4000
    assert (await tokens.bearer(own_login.token())).name == "oidc:ada"
    clock.now += 90_000
    with pytest.raises(ProviderUnavailableError):
        await tokens.bearer(own_login.token())
    own_login.down = False
    clock.now += 31
    assert (await tokens.bearer(own_login.token())).name == "oidc:ada"


async def test_other_kinds_of_keys_are_used_but_no_symmetric_one(own_login: Login) -> None:
    keys: dict[str, Any] = {"ES256": ec.generate_private_key(ec.SECP256R1())}
    keys["EdDSA"] = ed25519.Ed25519PrivateKey.generate()
    for kind, key in keys.items():
        algorithm: Any = jwt.get_algorithm_by_name(kind)
        own_login.more.append(json.loads(algorithm.to_jwk(key.public_key())) | {"kid": kind})
    secret = base64.urlsafe_b64encode(b"k" * 32).rstrip(b"=").decode()
    own_login.more.append({"kty": "oct", "k": secret, "kid": "shared", "alg": "HS256"})
    own_login.more.append({"kty": "unheard of", "kid": "x"})
    tokens = Tokens(Provider(own_login.url), AUDIENCE, "sub")
    for kind, key in keys.items():
        assert (await tokens.bearer(own_login.token(kind, key=key, header={"kid": kind}))).name == "oidc:ada"
    with pytest.raises(TokenRefusedError):
        await tokens.bearer(own_login.token("HS256", key=b"k" * 32, header={"kid": "shared"}))


@pytest.mark.parametrize(
    "documents",
    [
        {"/.well-known/openid-configuration": {"issuer": "https://evil.example.org", "jwks_uri": "{url}/keys"}},
        {"/.well-known/openid-configuration": {"issuer": "{url}", "jwks_uri": "http://192.0.2.1/keys"}},
        {"/.well-known/openid-configuration": {"issuer": "{url}", "jwks_uri": "file:///etc/passwd"}},
        {"/.well-known/openid-configuration": {"issuer": "{url}"}},
        {"/.well-known/openid-configuration": ["a list"]},
        {"/keys": {"keys": "none"}},
        {"/keys": {"keys": ["text", {"kid": 1}, {}]}},
        {"/keys": {"keys": [], "padding": "x" * (2 << 20)}},
    ],
)
async def test_a_provider_that_answers_nonsense_gives_no_keys(
    own_login: Login, monkeypatch: pytest.MonkeyPatch, documents: dict[str, Any]
) -> None:
    replaced = json.loads(json.dumps(documents).replace("{url}", own_login.url))
    usual = Login.documents
    monkeypatch.setattr(Login, "documents", lambda self: usual(self) | replaced)
    with pytest.raises((ProviderUnavailableError, TokenRefusedError)):
        await Tokens(Provider(own_login.url), AUDIENCE, "sub").bearer(own_login.token())


OPEN_SETTINGS: list[tuple[dict[str, str], str]] = [
    ({"oidc_issuer": "https://login.example.org", "authentication": "keys"}, "oidc_audience"),
    ({"oidc_issuer": "https://login.example.org", "oidc_audience": "x"}, "authentication"),
    ({"oidc_issuer": "http://login.example.org", "oidc_audience": "x", "authentication": "keys"}, "oidc_issuer"),
]


def test_settings_that_would_accept_the_tokens_of_others_are_refused() -> None:
    for given, fault in OPEN_SETTINGS:
        with pytest.raises(MemoTreeError, match=f"(?i){fault}"):
            load_settings(**given)
