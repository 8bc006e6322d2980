"""The `models` section of a pool: whether jobs get the device models that suit them."""

from penstock.core.config.fields import Section, flag, integer
from penstock.core.config.reader import Reader
from penstock.core.model.matching import MOVES_MAX, ModelRule


def _moves_what_it_matches(reader: Reader, rule: ModelRule) -> None:
    if rule.move and not rule.match:
        reader.wrong("move", rule.move, "false without `match: true`: running jobs move to what they are matched with")


MODELS = Section(
    ModelRule,
    {
        "match": flag("whether jobs get the model that suits them: by measured speed, or `speeds`, for their cost"),
        "move": flag("whether running jobs that can save move to another model where that pays, too"),
        "moves_per_hour": integer("how often in an hour one job may be moved for that", 0, MOVES_MAX),
    },
    _moves_what_it_matches,
)
