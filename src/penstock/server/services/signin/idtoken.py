"""ID tokens: the signature by the provider's keys, and the claims that OpenID Connect Core 3.1.3.7 has checked."""

from typing import Any

from penstock.server.services.signin.errors import ProviderFailed, WrongToken

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519")
"""Signatures by a private key. Not `none`, and no HMAC: with it a public key would be a password."""
KEY_TYPES = ("RSA", "EC", "OKP")
KEYS_MAX = 100
LEEWAY_S = 60
"""By which the clocks of provider and server may differ."""


def signing_keys(said: dict[str, Any]) -> Any:
    """Return the keys of a JWK Set that may sign; others are left out. Raises: ProviderFailed when there are none."""
    from joserfc.errors import JoseError
    from joserfc.jwk import JWKRegistry, KeySet

    listed = said.get("keys")
    keys = []
    for one in listed[:KEYS_MAX] if isinstance(listed, list) else ():
        if isinstance(one, dict) and one.get("kty") in KEY_TYPES and one.get("use", "sig") == "sig":
            try:
                keys.append(JWKRegistry.import_key(one))
            except (JoseError, ValueError, TypeError, KeyError):  # of a curve that is not known, or malformed
                continue
    if not keys:
        raise ProviderFailed("the identity provider publishes no key that can be used")
    return KeySet(keys)


def claims_of(token: str, keys: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return header and claims of a token that one of `keys` has signed.

    Raises: WrongToken; KeyError where its key is not among them, or the signature is another's: they may have changed.
    """
    from joserfc import jwt
    from joserfc.errors import BadSignatureError, InvalidKeyIdError, JoseError

    try:
        found = jwt.decode(token, keys, algorithms=list(ALGORITHMS))
    except (BadSignatureError, InvalidKeyIdError) as error:
        raise KeyError(error.error) from error
    except (JoseError, ValueError, TypeError) as error:
        raise WrongToken(f"the ID token cannot be read: {getattr(error, 'error', type(error).__name__)}") from error
    return dict(found.header), dict(found.claims)


def check_claims(
    header: dict[str, Any],
    claims: dict[str, Any],
    *,
    issuer: str,
    client_id: str,
    nonce: str,
    access_token: str,
    now_s: int,
) -> None:
    """Check that claims are of this issuer, for this client, of this sign-in, and not expired. Raises: WrongToken."""
    from authlib.oidc.core import CodeIDToken
    from joserfc.errors import JoseError

    options = {name: {"essential": True, "value": value} for name, value in (("iss", issuer), ("aud", client_id))}
    params = {"nonce": nonce, "client_id": client_id, "access_token": access_token}
    try:
        CodeIDToken(claims, header, options, params).validate(now_s, LEEWAY_S)
    except JoseError as error:
        named = getattr(error, "claim", None) or error.error
        raise WrongToken(f"the ID token is not one for this sign-in: {named}") from error
