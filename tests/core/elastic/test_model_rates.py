"""Speeds of a job by device model: whose word counts, and how they are brought to one scale."""

from msgspec.structs import replace

from penstock.core.elastic.model_rates import rates_of
from penstock.core.model.matching import KindSpeeds, ModelSpeed, RunSpeed
from penstock.core.model.progress import SizeNoted
from penstock.testing.harness import cluster

MODELS = ("A100", "H100", "V100")


def job():
    w = cluster()
    return w.job(w.submit())


def kind(name="k", **runs):
    """Return speeds by model: numbers are those of other jobs, pairs name the job."""
    speeds = []
    for model, rates in runs.items():
        made = (RunSpeed(*(one if isinstance(one, tuple) else (90 + n, one))) for n, one in enumerate(rates))
        speeds.append(ModelSpeed(model, tuple(made)))
    return KindSpeeds(name, "samples", tuple(speeds))


def found(*kinds, declared=(), usual=(), models=MODELS, of=None):
    rates = rates_of(of or job(), kinds, declared, usual, models)
    return {model: (one.rate // 1000, one.source, one.runs) for model, one in rates.items()}


def test_nothing_is_known_before_anything_was_said():
    assert found() == {}


def test_own_reports_come_first_and_scale_those_of_others():
    """It runs at half of its siblings' rate: on the A100 it is expected to do that, too."""
    known = kind(V100=[(1, 50), 100, 100], A100=[180, 200, 400])
    assert found(known) == {"V100": (500, "own", 1), "A100": (1000, "similar", 3)}


def test_the_narrow_kind_comes_before_the_wide_one():
    narrow, wide = kind(V100=[100], A100=[200]), kind(V100=[10], A100=[90], H100=[30])
    assert found(narrow, wide) == {
        "V100": (500, "similar", 1),
        "A100": (1000, "similar", 1),
        "H100": (450, "similar", 1),
    }  # its V100 and A100 scale the wide kind by (100 + 200) / (10 + 90)


def test_what_is_declared_fills_in_what_nobody_measured():
    known, declared = kind(V100=[100]), (("H100", 4000, 1), ("V100", 1000, 1))
    assert found(known, declared=declared) == {"V100": (250, "similar", 1), "H100": (1000, "declared", 0)}


def test_the_usual_speeds_come_last():
    usual = (("A100", 1000), ("H100", 2000), ("V100", 500))
    rates = found(declared=(("A100", 1000, 1), ("H100", 1000, 1)), usual=usual)
    assert {model: one[1] for model, one in rates.items()} == {
        "A100": "declared",
        "H100": "declared",
        "V100": "usual",
    }


def test_a_figure_without_a_common_model_says_nothing():
    assert found(kind(V100=[100]), declared=(("A100", 1000, 1),)) == {"V100": (1000, "similar", 1)}


def test_its_own_notes_count_when_siblings_have_pushed_its_runs_out():
    one = job()
    told = replace(one.progress, sizes=(SizeNoted(1, 0, samples_per_s_milli=50, model="A100"),))
    known = kind(V100=[(1, 100)], A100=[400, 400])
    assert found(known, of=replace(one, progress=told)) == {"V100": (1000, "own", 1), "A100": (500, "own", 1)}


def test_only_models_that_are_asked_for_are_answered():
    assert found(kind(V100=[100], A100=[200]), models=("V100",)) == {"V100": (1000, "similar", 1)}
