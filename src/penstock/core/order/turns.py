"""A queue that serves callers in turn: tenants by round robin, and within a tenant its users.

However much one caller has queued, another waits for at most one piece of work of each other caller (Nagle 1987, "On
packet switches with infinite storage", RFC 970: a queue for each source, served in turn).
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Container
from typing import Generic, NamedTuple, TypeVar

from penstock.core.model.errors import PenstockError

T = TypeVar("T")


class Submitter(NamedTuple):
    """One source of a queue: a user of a tenant. Cluster roles and the server itself have tenants of their own."""

    tenant: str
    user: str


class WaitingLimit(NamedTuple):
    """Most items that may wait."""

    user: int
    tenant: int
    total: int


class TooManyWaiting(PenstockError):
    """A caller's share of a queue is in use (`own`), or all of the queue is."""

    code = "too_many_requests"

    def __init__(self, text: str, *, own: bool) -> None:
        super().__init__(text, hint="come back in a moment")
        self.own = own


class FairQueue(Generic[T]):
    """Not for several threads at once."""

    def __init__(self, share: WaitingLimit, what: str = "requests") -> None:
        self._share, self._what = share, what
        self._tenants: OrderedDict[str, OrderedDict[str, deque[T]]] = OrderedDict()
        self._of_tenant: Counter[str] = Counter()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def put(self, caller: Submitter, item: T) -> None:
        """Queue an item. Raises: TooManyWaiting when a share is used up; nothing is queued then."""
        users = self._tenants.get(caller.tenant)
        own = users.get(caller.user) if users is not None else None
        if own is not None and len(own) >= self._share.user:
            raise TooManyWaiting(f"{len(own)} {self._what} of {caller.user or 'one caller'} wait already", own=True)
        if self._of_tenant[caller.tenant] >= self._share.tenant:
            text = f"{self._of_tenant[caller.tenant]} {self._what} of {caller.tenant or 'one tenant'} wait already"
            raise TooManyWaiting(text, own=True)
        if self._size >= self._share.total:
            raise TooManyWaiting(f"{self._size} {self._what} wait already", own=False)
        if users is None:
            users = self._tenants[caller.tenant] = OrderedDict()
        if own is None:
            own = users[caller.user] = deque()
        own.append(item)
        self._of_tenant[caller.tenant] += 1
        self._size += 1

    def take(self, but: Container[str] = ()) -> T:
        """Return the next item of any tenant `but` these. Raises: IndexError when other tenants have no item queued."""
        tenant = next((one for one in self._tenants if one not in but), None)
        if tenant is None:
            raise IndexError("nothing is queued")
        users = self._tenants[tenant]
        user, own = next(iter(users.items()))
        item = own.popleft()
        self._size -= 1
        self._of_tenant[tenant] -= 1
        users.move_to_end(user) if own else users.pop(user)
        if users:
            self._tenants.move_to_end(tenant)
        else:
            del self._tenants[tenant], self._of_tenant[tenant]
        return item
