"""Sign-in by an identity provider (OpenID Connect): authorization code flow with PKCE, state and nonce."""
