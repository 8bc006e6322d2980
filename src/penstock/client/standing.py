"""Calls about what a user sets once, or leaves at the server: notifications, schedules, snapshots of folders."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from penstock.api import types as api
from penstock.client.calling import HttpCaller

if TYPE_CHECKING:
    from penstock.api.notifications import NotificationList, NotificationMade, NotificationTested
    from penstock.api.schedules import ScheduleView
    from penstock.api.snapshots import SnapshotView


class StandingCalls(HttpCaller):
    """A part of `ApiClient`."""

    def notifications(self, *, everyone: bool = False) -> "NotificationList":
        """Return the caller's notifications (an administrator's: also everyone's), and the channels to choose from."""
        from penstock.api.notifications import NotificationList

        return self._call("GET", "/notifications", NotificationList, query={"everyone": "true"} if everyone else {})

    def set_notification(self, name: str, wanted: Mapping[str, Any]) -> "NotificationMade":
        """Choose what is sent where: channel, to, events, tenant, signing_key."""
        from penstock.api.notifications import NotificationMade

        return self._call("PUT", f"/notifications/{quote(name, safe='')}", NotificationMade, body=wanted)

    def remove_notification(self, name: str, user: str = "") -> None:
        query = {"user": user} if user else {}
        self._call("DELETE", f"/notifications/{quote(name, safe='')}", api.DoneAnswer, query=query)

    def test_notification(self, name: str) -> "NotificationTested":
        """Send a test message, and return whether it was taken."""
        from penstock.api.notifications import NotificationTested

        return self._call("POST", f"/notifications/{quote(name, safe='')}/test", NotificationTested)

    def schedules(self, *, everyone: bool = False) -> "list[ScheduleView]":
        """Return the caller's schedules, or all of tenants that they see."""
        from penstock.api.schedules import ScheduleList

        query = {"everyone": "true"} if everyone else {}
        return self._call("GET", "/schedules", ScheduleList, query=query).schedules

    def schedule(self, name: str, user: str = "") -> "ScheduleView":
        """Return a schedule with its next times and latest runs."""
        from penstock.api.schedules import ScheduleView

        return self._call("GET", _schedule(name), ScheduleView, query={"user": user} if user else {})

    def set_schedule(self, name: str, request: Any) -> "ScheduleView":
        """Set a schedule, or change it: a request as of `submit_request`, whose jobs have the field `schedule`."""
        from penstock.api.schedules import ScheduleView

        return self._call("PUT", _schedule(name), ScheduleView, body=request, again=True)

    def act_on_schedule(self, name: str, action: str, user: str = "") -> "ScheduleView":
        """`pause` a schedule, `resume` it, or `run` it now."""
        from penstock.api.schedules import ScheduleView

        query, body = {"user": user} if user else {}, {"action": action}
        return self._call("POST", f"{_schedule(name)}/actions", ScheduleView, body=body, query=query)

    def remove_schedule(self, name: str, user: str = "") -> None:
        self._call("DELETE", _schedule(name), api.DoneAnswer, query={"user": user} if user else {})

    def snapshots(self, search: str = "") -> "list[SnapshotView]":
        """Return the snapshots that the server keeps for the caller; of these only those whose names have a text."""
        from penstock.api.snapshots import SnapshotList

        query = {"search": search} if search else {}
        return self._call("GET", "/snapshots", SnapshotList, query=query).snapshots

    def remove_snapshot(self, name: str) -> None:
        """Remove a snapshot of the caller that no live job and no schedule starts in."""
        self._call("DELETE", f"/snapshots/{quote(name, safe='')}", api.DoneAnswer)


def _schedule(name: str) -> str:
    return f"/schedules/{quote(name, safe='')}"
