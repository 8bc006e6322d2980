"""Why a sign-in does not come about."""


class ProviderFailed(Exception):
    """The provider does not answer, or not as OpenID Connect says. The text names no secret."""

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.text, self.hint = text, hint


class SignInRefused(Exception):
    """The code, or the identity it stands for, is not accepted."""

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.text, self.hint = text, hint


class WrongToken(Exception):
    """An ID token is not what the provider should have signed for this sign-in."""
