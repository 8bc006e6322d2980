"""By which right a running job is asked to leave for another, in words."""

STOP_RULES: dict[str, str] = {
    "lower_priority": "it has the lower priority",
    "reclaim": "a queue reclaims its guarantee",
    "less_service": "the other has been served less so far",
    "shrink": "an elastic job shrinks to its minimum and continues there",
    "grow": "an elastic job grows",
    "rebalance": "the elastic jobs of the pool are re-allocated",
    "idle": "an elastic job that is mostly idle continues with half of its replicas (`elastic_shrink_idle`)",
    "held_idle": "it has been idle for longer than its queue allows (`idle`), and the other waits and fits there",
    "pair": "both use their devices little: it continues beside the other job, on one device",
    "part": "the two slow each other down on one device: it continues elsewhere",
    "defrag": "it moves, so that others fit",
    "model": "it moves to another device model: it and those that change places with it get more done (`models`)",
    "elsewhere": "it is suspended and jobs of lower priority hold its CPUs: it resumes where it gets capacity",
    "suspended_too_long": "it was suspended for longer than suspended_max: it restarts elsewhere",
    "cannot_freeze": "it was to be suspended, and its node cannot freeze it",
}
"""By the rule of a preemption (`core/model/plan.py`)."""
