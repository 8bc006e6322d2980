"""A fault says what is wrong where."""

from penstock.core.model.errors import PenstockError
from penstock.migrate.errors import ImportFault, all_of


def test_a_fault_says_file_line_field_value_and_what_was_expected():
    fault = ImportFault("slurm.conf", line=7, field="Nodez", value="a", expected="a key", hint="did you mean 'Nodes'?")
    assert isinstance(fault, PenstockError)
    assert str(fault) == "slurm.conf, line 7, Nodez: found 'a', expected a key"
    assert (fault.code, fault.hint, fault.problems[0].field) == (
        "bad_import",
        "did you mean 'Nodes'?",
        "slurm.conf:7: Nodez",
    )


def test_faults_that_were_collected_are_all_listed():
    faults = [ImportFault("f", line=n, expected="x") for n in (1, 2)]
    assert [p.field for p in all_of(faults).problems] == ["f:1", "f:2"]
