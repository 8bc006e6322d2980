"""What the API server refused, by what follows from it: try again, read anew, choose differently, or give up."""

from penstock.core.model.errors import PenstockError


class KubernetesError(PenstockError):
    """The API server refused a request, or could not be asked.

    Args:
        status: of HTTP; 0: there was no answer.
        reason: as in the answer's Status object, such as `AlreadyExists`.
    """

    code = "kubernetes"

    def __init__(self, message: str, *, status: int = 0, reason: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status, self.reason = status, reason


class Unavailable(KubernetesError):
    """No answer, or one that promises nothing (5xx): the request may have been carried out."""

    code = "kubernetes_unavailable"


class Busy(KubernetesError):
    """Too many requests (429), or an eviction that a PodDisruptionBudget forbids for now.

    Args:
        retry_after_s: what the server asked to wait; 0: it did not say.
    """

    code = "kubernetes_busy"

    def __init__(self, message: str, *, status: int = 429, reason: str = "", retry_after_s: float = 0.0) -> None:
        super().__init__(message, status=status, reason=reason)
        self.retry_after_s = retry_after_s


class Denied(KubernetesError):
    """The credentials are not accepted (401) or do not suffice (403)."""

    code = "kubernetes_denied"


class Missing(KubernetesError):
    """There is no such object, or no such kind (404)."""

    code = "kubernetes_missing"


class Conflict(KubernetesError):
    """The object is another one by now, or exists already (409): read it anew."""

    code = "kubernetes_conflict"


class ReadOnly(KubernetesError):
    """A write that a client for reading was asked for: nothing was sent."""

    code = "kubernetes_read_only"


class Expired(KubernetesError):
    """The resource version or the continue token is too old (410): list anew."""

    code = "kubernetes_expired"


class Rejected(KubernetesError):
    """The request is invalid as it stands (400, 405, 413, 415, 422): it would be refused again."""

    code = "kubernetes_rejected"


class BadCredentials(PenstockError):
    """A kubeconfig, a token file or a credential plugin gives no usable credentials."""

    code = "kubernetes_credentials"
