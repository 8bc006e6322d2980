"""Planted bugs: switches that break one rule each, to prove that the simulator finds such a bug.

Test only. Nothing in the product turns one on; `penstock.sim` does, for its own proof.
"""

PLANTED_BUGS: dict[str, str] = {
    "gang_checked_one_by_one": "each start is planned against the same free capacity",
    "plan_not_verified": "a plan is committed without looking at what changed meanwhile",
    "old_attempt_accepted": "reports of an older attempt are taken for the current one",
    "node_lost_too_early": "the server counts a node as lost before the node has ended its processes",
    "start_not_resent": "a start order that got lost is never sent again",
    "released_before_gone": "places are freed when the stop is asked for, not when the processes are gone",
    "cpus_given_before_frozen": "the CPUs of an attempt are others' when it is told to stand still, not when it does",
    "answer_before_commit": "a submit is answered before its commit is on disk",
    "stale_controller_commits": "the epoch is not compared inside the transaction",
    "held_tenant_starts": "a start that was planned before its tenant was held is committed all the same",
    "held_tenant_goes_on": "what runs of a tenant that is to leave is not asked to",
    "account_posted_blindly": "what was worked out is written though the account has changed since",
    "numbers_with_gaps": "invoices and credit notes are counted together",
    "claims_close_for_all": "what programs of one tenant print about a node closes it for all tenants",
    "limit_measured_before_names": "a request is measured as it was sent, not as what its names stand for",
    "rule_checked_after_work": "the jobs of a request are made, and then it is measured and refused",
    "running_use_forgotten": "books that are kept over a restart do not know what runs",
}

_planted: set[str] = set()


def plant(*names: str) -> None:
    """Turn on exactly these planted bugs (none to turn all off)."""
    unknown = [name for name in names if name not in PLANTED_BUGS]
    if unknown:
        raise ValueError(f"no planted bug named {unknown}; known: {sorted(PLANTED_BUGS)}")
    _planted.clear()
    _planted.update(names)


def planted(name: str) -> bool:
    """Return whether the planted bug `name` is on. Always False in the product."""
    return bool(_planted) and name in _planted
