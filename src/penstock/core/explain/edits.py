"""The smallest edits with which a job would start now, of its request and of the cluster."""

from collections.abc import Callable, Iterable
from itertools import chain, islice

from penstock.core.explain import edit_cluster, edit_job, edit_shape
from penstock.core.explain.scene import Scene
from penstock.core.explain.search import Edits, Search
from penstock.core.explain.trials import Trials
from penstock.core.model.explanation import Edit
from penstock.core.model.ids import JobId
from penstock.core.order.extension import Policies

REQUEST_EDITS_MAX = 8
CLUSTER_EDITS_MAX = 4
_REQUEST: tuple[Callable[[Search], Edits], ...] = (
    edit_shape.replicas,
    edit_shape.device_count,
    edit_shape.topology,
    edit_shape.models,
    edit_shape.device_filters,
    edit_shape.labels,
    edit_shape.host,
    edit_job.preemptible,
    edit_job.queue,
    edit_job.alternatives,
    edit_job.length,
    edit_job.priority,
)
_CLUSTER: tuple[Callable[[Search], Edits], ...] = (
    edit_cluster.quota,
    edit_cluster.open_node,
    edit_cluster.ending,
    edit_cluster.reserve,
    edit_cluster.reservation,
    edit_cluster.more_nodes,
)


def smallest_edits(scene: Scene, policies: Policies, awaited: frozenset[JobId]) -> tuple[tuple[Edit, ...], str]:
    """Return edits with which a plan starts the job (or asks victims to leave for it), and a note on untried ones.

    Edits of the request come first. Each is the smallest of its kind: a smaller change of the same field was found not
    to suffice. The end of a job that others depend on (`awaited`) is not proposed: its dependants would become ready.
    """
    trials = Trials(scene, policies)
    search = Search(scene, trials, awaited)

    def made(kinds: Iterable[Callable[[Search], Edits]]) -> Edits:
        return chain.from_iterable(kind(search) for kind in kinds)

    found = (*islice(made(_REQUEST), REQUEST_EDITS_MAX), *islice(made(_CLUSTER), CLUSTER_EDITS_MAX))
    nodes, classes = len(scene.snapshot.nodes), len(scene.snapshot.classes)
    note = f"not everything was tried: {trials.plans} plans were made on {nodes} nodes with {classes} kinds of requests"
    return found, note if trials.spent else ""
