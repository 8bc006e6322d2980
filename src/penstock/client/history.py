"""Operations of the API that few programs call; their answers are imported where they are used."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from penstock.client.calling import HttpCaller

if TYPE_CHECKING:
    from penstock.api.history import JobEta, SeriesList, TimelineView
    from penstock.api.joined import JoinBundleAnswer, JoinedNodeView
    from penstock.api.whatif import WhatIfView
    from penstock.core.model.diagnosis import Diagnosis


class HistoryCalls(HttpCaller):
    """A part of `ApiClient`."""

    def timeline(self, /, **query: Any) -> "TimelineView":
        """Return what jobs held: `from` and `until` (times with offset), by, node, tenant, user, job, limit, cursor."""
        from penstock.api.history import TimelineView

        return self._call("GET", "/timeline", TimelineView, query=query)

    def cluster_series(self, /, *names: str, **query: Any) -> "SeriesList":
        """Return courses over time: `from` and `until` (times with offset), step, tenant."""
        from penstock.api.history import SeriesList

        return self._call(
            "GET", "/series", SeriesList, query={**query, **({"names": ",".join(names)} if names else {})}
        )

    def begin_whatif(self, asked: Mapping[str, Any]) -> "WhatIfView":
        """Replay the cluster's jobs under other rules: set, policies, nodes, since. It goes on beside the server."""
        from penstock.api.whatif import WhatIfView

        return self._call("POST", "/whatif", WhatIfView, body=asked)

    def whatif(self, whatif_id: str) -> "WhatIfView":
        """Return how far a what-if is, and what it has come to."""
        from penstock.api.whatif import WhatIfView

        return self._call("GET", f"/whatif/{quote(whatif_id, safe='')}", WhatIfView)

    def whatifs(self) -> "list[WhatIfView]":
        """Return those of the last hour, newest first, without their results."""
        from penstock.api.whatif import WhatIfList

        return self._call("GET", "/whatif", WhatIfList).whatifs

    def cancel_whatif(self, whatif_id: str) -> "WhatIfView":
        """Cancel a what-if; one that is done is forgotten."""
        from penstock.api.whatif import WhatIfView

        return self._call("DELETE", f"/whatif/{quote(whatif_id, safe='')}", WhatIfView)

    def job_eta(self, job_id: int) -> "JobEta":
        """Return when a job starts, or how right the estimates of its last start were."""
        from penstock.api.history import JobEta

        return self._call("GET", f"/jobs/{job_id}/eta", JobEta)

    def diagnosis(self, job_id: int) -> "Diagnosis":
        """Return what the log says about why a job failed, hangs or started again."""
        from penstock.core.model.diagnosis import Diagnosis

        return self._call("GET", f"/jobs/{job_id}/diagnosis", Diagnosis)

    def declare_node(self, wanted: Mapping[str, Any]) -> "JoinBundleAnswer":
        """Declare a node of another machine (`NewJoinedNode`); return the bundle with which it joins."""
        from penstock.api.joined import JoinBundleAnswer

        return self._call("POST", "/joined-nodes", JoinBundleAnswer, body=wanted)

    def joined_nodes(self) -> "list[JoinedNodeView]":
        """Return the declared nodes of other machines."""
        from penstock.api.joined import JoinedNodeList

        return self._call("GET", "/joined-nodes", JoinedNodeList).nodes

    def remove_node(self, name: str) -> None:
        """Let a node of another machine in no more."""
        from penstock.api.types import DoneAnswer

        self._call("DELETE", f"/joined-nodes/{quote(name, safe='')}", DoneAnswer)
