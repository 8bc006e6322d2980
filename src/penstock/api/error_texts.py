"""What each stable error code means, and what helps. docs/errors.md is made from these tables.

`tests/docs/test_reference.py` compares them with the codes that the code uses.
"""

from typing import NamedTuple


class ErrorText(NamedTuple):
    """For people; no full stop at the end."""

    meaning: str
    next_step: str


ANSWERS: dict[str, ErrorText] = {
    "bad_request": ErrorText("the request is no proper HTTP, or its path cannot be", "look at how it is made"),
    "not_json": ErrorText("the body is not JSON; `detail` says where it ends to be", "encode it as JSON"),
    "unauthenticated": ErrorText(
        "no token came with it, or one that is not valid: unknown, revoked, expired, or of a user who is disabled",
        "send `Authorization: Bearer TOKEN`; `penstock token create` makes one",
    ),
    "forbidden": ErrorText(
        "the caller's role, or the level of the token, does not reach that far; `title` says for what",
        "ask an administrator for the role, or use another token; `GET /me` shows what yours may do",
    ),
    "not_found": ErrorText(
        "there is no such thing, or the caller does not see it: both are answered alike",
        "look at the number or name",
    ),
    "method_not_allowed": ErrorText("the path exists, and not with this method", "`Allow` names the methods"),
    "conflict": ErrorText(
        "it does not go together with what is: the key was used for another request, what was planned on has changed, "
        "the payment is more than is due",
        "read again, decide again, send again",
    ),
    "secret_unreadable": ErrorText(
        "a sealed value cannot be opened with the keys that this server has",
        "bring back the key files of the data folder, or set the secret anew",
    ),
    "precondition_failed": ErrorText(
        "`If-Match` names another version than the present one; nothing was done", "look at `now`, then decide again"
    ),
    "too_large": ErrorText(
        "a body, or the number of jobs in it, is over a limit; nothing of it was read further", "send several"
    ),
    "invalid_input": ErrorText(
        "something is wrong with values; `problems` lists all of it, each with its field", "mend the fields named"
    ),
    "too_many_requests": ErrorText(
        "this caller has too many requests at once, or in this second", "send again after `Retry-After` seconds"
    ),
    "internal_error": ErrorText(
        "a fault of the server; what it was stands in the server's own log", "report it, with that log"
    ),
    "unavailable": ErrorText(
        "not possible here: a library is not installed, an estimate cannot be made now", "`title` says what is missing"
    ),
    "provider_failed": ErrorText(
        "the identity provider does not answer, or not as OpenID Connect says; nobody was signed in",
        "sign in with a token, or try again; the operator looks at the provider and at `oidc` in the cluster file",
    ),
    "overloaded": ErrorText(
        "the server has as much as it may take: live jobs, open streams, requests that wait", "send again later"
    ),
    "store_unavailable": ErrorText(
        "the log cannot be written now; nothing was done", "send again; the operator looks at the database or the disk"
    ),
    "stale_epoch": ErrorText("another server has taken over in this moment; nothing was done", "send again"),
    "not_leader": ErrorText(
        "a server on standby was asked for something that only the leader does", "ask at `leader`, where it is named"
    ),
    "store_full": ErrorText("no space for the log; nothing was done", "the operator frees space; then send again"),
}
"""Of answers of the API: `code` of the problem details."""

PROGRAM: dict[str, ErrorText] = {
    "usage": ErrorText("the command line cannot be read", "`penstock COMMAND --help` shows options and examples"),
    "not_confirmed": ErrorText(
        "a question was not answered with yes; nothing was changed", "answer it, or give `--yes`"
    ),
    "bad_import": ErrorText("a configuration of another scheduler cannot be read", "each problem names file and line"),
    "bad_trace": ErrorText("a trace cannot be read", "docs/traces.md says what is"),
    "bad_certificate": ErrorText("a certificate or its key cannot be used", "the message says why"),
    "server_not_running": ErrorText("no server answers there", "`penstock up`, or another `--server`"),
    "not_trusted": ErrorText(
        "what answers is not proved to be the server; nothing was sent to it",
        "give its certificate, or look who listens",
    ),
    "not_private": ErrorText("another user could change a file that is believed", "the hint has the `chmod`"),
    "already_running": ErrorText("a server runs on this data folder", "use it, or `penstock down`"),
    "job_failed": ErrorText("a job that was waited for did not succeed", "`penstock show JOB`"),
    "timed_out": ErrorText("it did not come to pass in the time given", "wait again"),
}
"""Of the program `penstock` itself, beside those above."""

PROBLEMS: dict[str, str] = {
    "bad_value": "the value is of another type, or outside of what is allowed; the message has both",
    "not_kept": "the engine of this server cannot do what the field asks for; the message says which",
    "invalid_value": "the same, of an option of a command",
    "missing_field": "a field is needed",
    "unknown_kind": "there are no such events",
    "unknown_sort": "the list has no such order; the hint names the nearest",
    "unknown_totals_by": "the list cannot be counted by that; the hint names the nearest",
    "unknown_field": "there is no such field; the hint names the nearest",
    "duplicate_name": "two entries have one name",
    "too_many_problems": "there are more problems than are listed",
    "unknown_account": "there is no such machine account where the server runs",
    "checkpoint_not_shared": "the job asks for shared storage, and not all nodes that it may run on share one",
    "unknown_snapshot": "the caller has sent no such snapshot of a folder, or not lately; clients send it at submit",
    "unknown_array": "there is no such array of jobs",
    "unknown_invoice": "there is no such invoice",
    "unknown_job": "there is no such job",
    "unknown_policy": "there is no such policy",
    "unknown_pool": "there is no such pool",
    "unknown_queue": "there is no such queue",
    "unknown_rack": "there is no such rack",
    "unknown_resource": "there is no such kind of resource",
    "unknown_notification": "the user has set no such notification",
    "unknown_secret": "the user and the tenant have no such secret",
    "unknown_series": "there is no such series",
    "unknown_setting": "there is no such setting",
    "unknown_state": "there is no such state of jobs",
    "unknown_tenant": "there is no such tenant, or the token does not reach it",
    "unknown_time_zone": "there is no such time zone",
    "unknown_user": "there is no such user",
    "bad_id": "not the number of a job, nor a range of them",
    "empty_selection": "the selection names no jobs, or names them in two ways",
    "too_many_ids": "more numbers of jobs than one request may have",
    "too_long": "a pattern or list of a selection is longer than it may be",
    "too_deep": "the queue tree is deeper than it may be",
    "too_large": "one value is larger than it may be",
    "too_many": "more changes than one request may have",
    "too_many_jobs": "more jobs than one request may have",
    "too_many_dependencies": "more dependencies than a job, or a request, may have",
    "too_many_shapes": "more different shapes of jobs than may wait",
    "too_many_secrets": "as many secrets as there may be",
    "too_many_notifications": "as many notifications as one user, or all, may have",
    "too_many_schedules": "as many schedules as one user, or all, may have",
    "scheduled": "jobs with a schedule are not submitted as others are",
    "never_due": "the times of a schedule are none",
    "not_started": "a run of a schedule could not be started; the text says why",
    "too_many_tokens": "as many tokens as there may be",
    "share_used_up": "this user or tenant has as much of something as one may; others still may have more",
    "queue_full": "as many jobs wait in the queue as it lets (`max_waiting`)",
    "over_power_limit": "the devices of one job alone would draw more than the `power_limit` of its pool",
    "over_maximum": "one job alone asks for more than a maximum of its queue or tenant",
    "never_fits": "the job could not start even on the whole empty cluster; the hint says what would fit",
    "dependency_cycle": "jobs wait for each other in a ring",
    "queue_cycle": "queues are each other's parents",
    "guarantee_above_max": "more is guaranteed to a queue than its maximum",
    "guarantee_above_parent": "queues are guaranteed more than their parent",
    "lend_above_guarantee": "a queue lends more than is guaranteed to it",
    "reservation_overlap": "two reservations take the same node at the same time",
    "still_used": "live jobs need what is to be taken away",
    "not_permitted": "an administrator has not declared that way, or not that destination",
    "not_supported": "the value is known and not supported here",
    "changed_since": "what the plan was made of has changed since",
    "idempotency_key_reused": "the key was used for another request",
    "reference_reused": "the reference names another payment or credit",
    "not_running": "the job does not run",
    "not_waiting": "the job does not wait",
    "no_fit": "the places that another scheduler reported do not exist, or are held",
    "cannot_checkpoint": "the program has not said how it is asked to save",
    "beyond_own_token": "the new token would do more, or for longer, than the one it is made with",
    "busy": "the control loop has more requests than it takes at once",
    "not_private": "another user could change a file that is believed",
    "past_price": "a price of the past would change",
    "past_terms": "terms of the past would change",
    "past_unit": "currency, time zone or another unit of what was billed would change",
    "does_not_add_up": "the invoice differs from what the log gives for the month",
    "number_taken": "the number belongs to another invoice",
    "too_much": "the amount is more than is open",
    "spent": "what should be taken back is spent",
    "expired": "nothing of it is left",
    "reversed_before": "it was taken back before",
}
"""Of the entries of `problems`: one thing wrong with one field."""
