"""Why a job waits: all binding constraints, with numbers, the smallest edits proven by a plan, when it may start."""

from penstock.core.explain.why import Explainer, Question, explain, question_of
from penstock.core.model.explanation import Constraint, Edit, Explanation, Stop

__all__ = ["Constraint", "Edit", "Explainer", "Explanation", "Question", "Stop", "explain", "question_of"]
