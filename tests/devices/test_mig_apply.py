"""Instances are made and destroyed by plan: by a simulated driver, by one that fails at random, by a real process."""

import itertools
import os
import stat
import sys

import msgspec
import pytest

from penstock.core.place.mig_plan import STRATEGIES
from penstock.devices import mig_journal
from penstock.devices.mig_apply import Applied, MigKeeper, NotMade, preview
from penstock.devices.mig_journal import Given, MigJournal, Place
from penstock.devices.nvidia_tools.mig_state import read_state
from penstock.devices.provider import Machine, Output
from penstock.devices.simulated import simulated
from penstock.devices.simulated_mig import SimulatedMig, simulated_uuid
from tests.core.place.published import Published
from tests.devices.faulty_smi import CHANGES, FaultySmi, Killed
from tests.properties import LONG

A100 = Published("A100 40GB")
RUNS = 3_000 if LONG else 40
MODELS = {"A100 40GB": ("A100", 40), "A30 24GB": ("A30", 24), "H100 80GB": ("H100", 80)}
TABLES = {name: Published(name) for name in MODELS}
GPU = simulated_uuid(0)


def place(text, gpu=0):
    name, start = text.split("@")
    return Place(simulated_uuid(gpu), name, int(start))


class Node:
    """A node with simulated devices, its keeper, and the tool between them."""

    def __init__(self, folder, model="A100 40GB", count=1, seed=0, **fields):
        family, gb = MODELS[model]
        self.folder = folder
        smi = SimulatedMig(folder / "mig.json", simulated(count, family, gb * 10**9, mig=True), **fields)
        self.smi = FaultySmi(smi, TABLES[model], seed)
        self.keeper = self._keeper()

    def _keeper(self):
        return MigKeeper(self.folder, lambda _: self.smi, pause=lambda _: None)

    def restart(self, *owners):
        self.keeper.close()
        self.keeper = self._keeper()
        self.keeper.keep_only(owners)

    def give(self, owner, text, gpu=0):
        """Ask, and once more after `between` where that may help, as agents do."""
        given = self.keeper.give(owner, place(text, gpu))
        if isinstance(given, NotMade) and given.passing:
            self.between()
            given = self.keeper.give(owner, place(text, gpu))
        return given

    def between(self):
        """What happens until the agent asks again."""

    def lies(self, gpu=0):
        return [f"{name}@{start}" for name, start in self.smi.smi.lies(gpu)]

    def changes(self):
        return [" ".join(call[2:]) for call in self.smi.calls if CHANGES & set(call)]


@pytest.fixture
def node(tmp_path):
    made = Node(tmp_path)
    yield made
    made.keeper.close()


def refusal(result):
    assert isinstance(result, NotMade), result
    return result.reason


def test_an_instance_is_made_at_its_place_and_named_for_programs(node):
    given = node.give("j1", "3g.20gb@4")
    assert node.changes() == ["-i 0 -cgi 9:4 -C"]
    assert given == Given(place("3g.20gb@4"), read_state(node.smi)[0].instances[0].uuid)
    assert given.uuid.startswith("MIG-")


def test_an_instance_stays_for_the_next_owner_of_its_place(node):
    first = node.give("j1", "2g.10gb@0")
    node.keeper.take_back("j1")
    assert node.give("j2", "2g.10gb@0") == first
    assert len(node.changes()) == 1


def test_what_is_in_the_way_goes_compute_instance_first_and_nothing_else(node):
    for owner, text in (("j1", "1g.5gb@0"), ("j2", "1g.5gb@5"), ("j3", "1g.5gb@6")):
        node.give(owner, text)
    node.keeper.take_back("j1")
    node.keeper.take_back("j3")
    node.smi.calls.clear()
    assert isinstance(node.give("j4", "4g.20gb@0"), Given)
    assert node.changes() == ["-i 0 -gi 7 -ci 0 -dci", "-i 0 -gi 7 -dgi", "-i 0 -cgi 5:0 -C"]
    assert node.lies() == ["4g.20gb@0", "1g.5gb@5", "1g.5gb@6"]


def test_what_is_given_out_is_destroyed_for_nobody(node):
    node.give("j1", "1g.5gb@0")
    assert "no room for 4g.20gb at 0 beside what is in use there (1g.5gb at 0)" in refusal(node.give("j2", "4g.20gb@0"))
    assert refusal(node.give("j2", "1g.5gb@0")) == "the instance 1g.5gb at 0 is given to j1"
    assert refusal(node.give("j1", "1g.5gb@1")) == "j1 has the instance 1g.5gb at 0 already"
    assert node.lies() == ["1g.5gb@0"]


def test_an_instance_that_a_stranger_has_open_is_neither_given_nor_destroyed(node):
    node.give("j1", "1g.5gb@0")
    node.keeper.take_back("j1")
    node.smi.smi.occupy(0, 0, 4711)
    assert refusal(node.give("j2", "1g.5gb@0")) == "process 4711 has the instance 1g.5gb at 0 open"
    assert "beside what is in use there (1g.5gb at 0)" in refusal(node.give("j2", "4g.20gb@0"))
    node.smi.smi.occupy(0, 0)
    assert isinstance(node.give("j2", "4g.20gb@0"), Given)


def test_a_process_that_comes_between_plan_and_step_stops_the_step(node):
    node.give("j1", "1g.5gb@0")
    node.keeper.take_back("j1")
    plain = node.smi.run

    def run(*command, **fields):
        if "-lgip" in command:  # after the plan
            node.smi.smi.occupy(0, 0, 4711)
        return plain(*command, **fields)

    node.smi.run = run
    assert "process 4711 has" in refusal(node.keeper.give("j2", place("4g.20gb@0")))
    assert node.lies() == ["1g.5gb@0"]
    assert not any("-dci" in call for call in node.smi.calls)


def test_the_same_owner_may_ask_again_after_a_restart_and_others_are_forgotten(node):
    given = node.give("j1", "3g.20gb@0")
    node.give("j2", "3g.20gb@4")
    node.restart("j1")
    assert node.give("j1", "3g.20gb@0") == given
    assert isinstance(node.give("j3", "3g.20gb@4"), Given)
    assert len(node.changes()) == 2


def test_an_instance_that_an_owner_has_keeps_its_place_when_it_vanishes(node):
    node.give("j1", "1g.5gb@0")
    (node.folder / "mig.json").unlink()
    assert "in use there (1g.5gb at 0)" in refusal(node.give("j2", "4g.20gb@0"))


def test_a_dry_run_says_the_commands_and_does_nothing(node):
    node.give("j1", "1g.5gb@0")
    node.keeper.take_back("j1")
    node.smi.calls.clear()
    planned = preview(node.folder, node.smi, GPU, "training")
    assert [" ".join(command) for command in planned.commands] == [
        "nvidia-smi mig -i 0 -gi 7 -ci 0 -dci",
        "nvidia-smi mig -i 0 -gi 7 -dgi",
        "nvidia-smi mig -i 0 -cgi 9:0 -C",
        "nvidia-smi mig -i 0 -cgi 9:4 -C",
    ]
    assert (node.changes(), node.lies()) == ([], ["1g.5gb@0"])
    assert node.keeper.divide(GPU, "training") == planned
    assert node.lies() == ["3g.20gb@0", "3g.20gb@4"]


def test_a_dry_run_leaves_what_is_given_out_and_writes_no_file(node):
    node.give("j1", "1g.5gb@0")
    before = {path.name: path.stat().st_mtime_ns for path in node.folder.iterdir()}
    planned = preview(node.folder, node.smi, GPU, "training")
    assert [" ".join(command) for command in planned.commands] == ["nvidia-smi mig -i 0 -cgi 9:4 -C"]
    assert {path.name: path.stat().st_mtime_ns for path in node.folder.iterdir()} == before


def test_mig_is_never_switched_on(tmp_path):
    off = Node(tmp_path, mode="Disabled")
    assert refusal(off.give("j1", "1g.5gb@0")) == (
        "MIG is off on device 0; an administrator switches it on while it is idle: nvidia-smi -i 0 -mig 1"
    )
    assert off.changes() == []
    off.keeper.close()


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (Output(missing=True), "the state of MIG is not known: nvidia-smi is not installed"),
        (Output(timed_out=True), "the state of MIG is not known: nvidia-smi gave no answer in time"),
        (Output("", code=0), "the state of MIG is not known: no heading and no sentence"),
    ],
)
def test_without_a_state_nothing_is_changed(node, output, reason):
    node.smi.run = lambda *command, **_: output
    assert refusal(node.give("j1", "1g.5gb@0")).startswith(reason)


def test_a_device_that_is_not_there_and_a_profile_that_it_does_not_have_are_refused(node):
    assert "does not list device" in refusal(node.give("j1", "1g.5gb@0", gpu=3))
    assert "profile 1g.10gb+me is none of A100 40GB" in refusal(node.give("j1", "1g.10gb+me@0"))


def test_the_words_of_the_driver_are_passed_on(node):
    plain = node.smi.run
    text = "Unable to create a GPU instance on GPU  0 using profile 19: Insufficient Permissions\n"
    node.smi.run = lambda *command, **_: Output(text, code=4) if "-cgi" in command else plain(*command)
    assert "using profile 19: Insufficient Permissions" in refusal(node.give("j1", "1g.5gb@0"))


def test_a_driver_that_lets_go_a_little_late_is_asked_again(node):
    node.give("j1", "1g.5gb@0")
    node.keeper.take_back("j1")
    plain, late = node.smi.run, iter([True])
    text = "Unable to destroy GPU instance ID  7 from GPU  0: In use by another client\n"

    def run(*command, **_):
        return Output(text, code=1) if "-dgi" in command and next(late, False) else plain(*command)

    node.smi.run = run
    assert isinstance(node.give("j2", "4g.20gb@0"), Given)
    assert node.lies() == ["4g.20gb@0"]


def test_a_step_that_is_stuck_is_in_the_way_of_its_own_slices_only(node):
    node.give("j1", "1g.5gb@0")
    node.keeper.take_back("j1")
    plain = node.smi.run
    stuck = Output("Unable to destroy GPU instance ID  7 from GPU  0: In use by another client\n", code=1)
    never = Output("Failed to create compute instances: Unknown Error\n", code=1)
    node.smi.run = lambda *c, **_: stuck if "-dgi" in c else never if "-cci" in c else plain(*c)
    assert isinstance(node.give("j2", "4g.20gb@0"), NotMade)
    assert "beside what is in use there (1g.5gb at 0)" in refusal(node.give("j2", "4g.20gb@0"))
    assert isinstance(node.give("j3", "3g.20gb@4"), Given)
    node.smi.run = plain
    assert isinstance(node.give("j2", "4g.20gb@0"), Given)


def kill_at(node, option, *, after):
    """Have the agent end right before or after the next call with this option."""
    plain, once = node.smi.run, iter([True])

    def run(*command, **_):
        if option not in command or not next(once, False):
            return plain(*command)
        if after:
            plain(*command)
        raise Killed

    node.smi.run = run


def test_an_instance_that_was_half_gone_at_a_crash_goes_when_anything_is_done_on_its_device(node):
    node.give("j1", "1g.5gb@0")
    node.keeper.take_back("j1")
    kill_at(node, "-dgi", after=False)
    with pytest.raises(Killed):
        node.give("j2", "4g.20gb@0")
    assert node.lies() == ["1g.5gb@0"]
    node.restart()
    assert isinstance(node.give("j3", "3g.20gb@4"), Given)
    assert node.lies() == ["3g.20gb@4"]


def test_an_instance_that_was_made_at_a_crash_is_there_for_the_order_that_comes_again(node):
    kill_at(node, "-cgi", after=True)
    with pytest.raises(Killed):
        node.give("j1", "3g.20gb@4")
    node.restart("j1")
    assert isinstance(node.give("j1", "3g.20gb@4"), Given)
    assert len(node.changes()) == 1


def test_an_instance_without_its_compute_instance_is_completed_not_made_anew(node):
    node.smi.run("nvidia-smi", "mig", "-i", "0", "-cgi", "9:4")
    assert isinstance(node.give("j1", "3g.20gb@4"), Given)
    assert node.changes()[1:] == ["-i 0 -gi 1 -cci"]


def test_an_instance_of_which_only_half_was_made_is_completed_for_later(node):
    plain = node.smi.run
    node.smi.run = lambda *c, **_: plain(*c) if "-cgi" not in c else plain(*c[:-1]) and Output(timed_out=True)
    assert "gave no answer in time" in refusal(node.keeper.give("j1", place("3g.20gb@4")))
    assert [one.compute for one in node.smi.smi.state().instances[0]] == [[0]]


def test_an_owner_whose_program_runs_may_ask_again(node):
    given = node.give("j1", "3g.20gb@4")
    node.smi.smi.occupy(0, 4, 4711)
    node.restart("j1")
    assert node.give("j1", "3g.20gb@4") == given


def test_a_stranger_who_leaves_is_waited_for(node):
    node.give("j1", "1g.5gb@0")
    node.keeper.take_back("j1")
    node.smi.smi.occupy(0, 0, 4711)
    node.between = lambda: node.smi.smi.occupy(0, 0)
    assert isinstance(node.give("j2", "4g.20gb@0"), Given)


def test_an_instance_that_others_have_divided_is_theirs(node):
    node.give("j1", "3g.20gb@0")
    node.keeper.take_back("j1")
    state = node.smi.smi.state()
    state.instances[0][0].compute.append(1)
    (node.folder / "mig.json").write_bytes(msgspec.json.encode(state))
    assert "beside what is in use there (3g.20gb at 0)" in refusal(node.give("j2", "4g.20gb@0"))


def test_lists_that_do_not_agree_are_no_state(node):
    node.give("j1", "3g.20gb@0")
    plain, none = node.smi.run, Output("No GPU instances found: Not Found\n", code=6)
    node.smi.run = lambda *c, **_: none if "-lgi" in c else plain(*c)
    assert "the instances of device 0 changed while they were read" in refusal(node.give("j2", "1g.5gb@6"))


def test_an_answer_that_claims_success_with_a_failing_code_is_not_believed(node):
    plain = node.smi.run
    text = "Successfully created GPU instance ID  1 on GPU  0 using profile MIG 3g.20gb (ID  9)\n"
    node.smi.run = lambda *c, **_: Output(text, code=1) if "-cgi" in c else plain(*c)
    assert "it says neither that it did it nor why not" in refusal(node.give("j1", "3g.20gb@4"))


def test_a_tool_that_outlives_its_agent_still_holds_the_lock(node, tmp_path, monkeypatch):
    monkeypatch.setattr(mig_journal, "LOCK_WAIT_S", 0.1)
    other = MigKeeper(tmp_path, lambda _: node.smi, pause=lambda _: None)
    with node.keeper._lock.locked():
        assert "a tool of a former agent" in refusal(other.give("j1", place("1g.5gb@0")))
    assert isinstance(other.give("j1", place("1g.5gb@0")), Given)
    other.close()


def test_a_line_that_was_cut_says_nothing(tmp_path):
    journal = MigJournal(tmp_path / "journal")
    journal.give("j1", Given(place("1g.5gb@0"), "MIG-1"))
    journal.begin("create", place("1g.5gb@1"))
    journal.close()
    with (tmp_path / "journal").open("ab") as file:
        file.write(b'{"what":"back","own')
    again = MigJournal(tmp_path / "journal")
    assert again.given == {"j1": Given(place("1g.5gb@0"), "MIG-1")}
    assert again.begun == {place("1g.5gb@1"): "create"}
    again.end(place("1g.5gb@1"))
    again.take_back("j1")
    again.close()
    last = MigJournal(tmp_path / "journal")
    assert (last.given, last.begun) == ({}, {})
    last.close()


def test_a_journal_does_not_grow_for_ever_and_forgets_nothing_that_is_in_force(tmp_path, monkeypatch):
    monkeypatch.setattr(mig_journal, "LINES_MAX", 5)
    journal = MigJournal(tmp_path / "journal")
    journal.give("j0", Given(place("3g.20gb@4"), "MIG-0"))
    for job in range(20):
        journal.begin("create", place("1g.5gb@0"))
        journal.end(place("1g.5gb@0"))
        journal.give(f"j{job + 1}", Given(place("1g.5gb@0"), "MIG-1"))
        journal.take_back(f"j{job + 1}")
        assert len((tmp_path / "journal").read_bytes().splitlines()) <= 6
    journal.begin("destroy", place("1g.5gb@0"))
    journal.close()
    again = MigJournal(tmp_path / "journal", read_only=True)
    assert (set(again.given), again.begun) == ({"j0"}, {place("1g.5gb@0"): "destroy"})


class Storm:
    """One seeded run: owners come and go, strangers open what is idle, and the tool fails and is killed."""

    def __init__(self, folder, seed):
        model = sorted(MODELS)[seed % len(MODELS)]
        self.table = TABLES[model]
        self.count = 2
        self.node = Node(
            folder,
            model,
            self.count,
            seed,
        )
        self.smi = self.node.smi
        self.random = self.smi.random
        self.names = itertools.count(1)

    def slices(self, place):
        return set(range(place[1], place[1] + self.table.rows[place[0]][1]))

    def turn(self):
        what = self.random.choice(("give", "give", "give", "back", "stranger", "leave", "divide"))
        if what == "give":
            self.give(f"j{next(self.names)}", self.random.randrange(self.count), self.random.choice(self.table.places))
        elif what == "back" and self.smi.owned:
            owner = self.random.choice(sorted(self.smi.owned))
            gpu, at = self.smi.owned.pop(owner)
            self.smi.smi.occupy(gpu, at[1])
            self.node.keeper.take_back(owner)
        elif what == "divide":
            self.node.keeper.divide(simulated_uuid(self.random.randrange(self.count)), self.random.choice(STRATEGIES))
        elif what in ("stranger", "leave"):
            owned = set(self.smi.owned.values())
            idle = [(gpu, at) for gpu in range(self.count) for at in self.smi.smi.lies(gpu) if (gpu, at) not in owned]
            for gpu, at in idle:
                comes = what == "stranger" and self.random.random() < 0.3
                self.smi.smi.occupy(gpu, at[1], *([4711] if comes else []))

    def give(self, owner, gpu, at):
        """Ask; after a kill start anew and ask again, as the server does."""
        while True:
            try:
                given = self.node.keeper.give(owner, Place(simulated_uuid(gpu), *at))
                break
            except Killed:
                if self.random.random() < 0.3:
                    with (self.node.folder / "mig.journal").open("ab") as file:
                        file.write(b'{"what":"given","own')
                self.node.restart(owner, *self.smi.owned)
        if isinstance(given, NotMade):
            return None
        for other, there in self.smi.owned.values():
            assert other != gpu or not self.slices(there) & self.slices(at), "two owners of a slice"
        instance = next(one for one in self.smi.smi.state().instances[gpu] if one.start == at[1])
        assert (instance.profile, len(instance.compute)) == (at[0], 1)
        self.smi.owned[owner] = (gpu, at)
        if self.random.random() < 0.7:
            self.smi.smi.occupy(gpu, at[1], 1000 + gpu)
        return given

    def converge(self):
        """Without faults everything that the published places allow beside the owners can be had."""
        self.smi.rate = 0
        for gpu in range(self.count):
            owned = [at for on, at in self.smi.owned.values() if on == gpu]
            for _, at in [(g, a) for g, a in self.smi.open_instances() if g == gpu and a not in owned]:
                self.smi.smi.occupy(gpu, at[1])
            for at in self.random.sample(self.table.places, k=8):
                allowed = at not in owned and self.table.is_legal([*owned, at])
                given = self.give(f"j{next(self.names)}", gpu, at)
                assert (given is not None) == allowed, (owned, at)
                owned += [at] if allowed else []
            strategy = self.random.choice(STRATEGIES)
            divided, again = (self.node.keeper.divide(simulated_uuid(gpu), strategy) for _ in range(2))
            assert isinstance(divided, Applied), "it is divided beside its owners"
            assert again.commands == (), "and then nothing is left to do"
            assert all(one.compute for one in self.smi.smi.state().instances.get(gpu, []))
        kept = MigJournal(self.node.folder / "mig.journal")
        assert kept.begun == {}
        assert {(g.place.gpu, (g.place.profile, g.place.start)) for g in kept.given.values()} == {
            (simulated_uuid(gpu), at) for gpu, at in self.smi.owned.values()
        }
        kept.close()


@pytest.mark.parametrize("part", range(4))
def test_a_tool_that_fails_at_random_never_makes_two_owners_and_what_is_wanted_comes_about(part, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # nothing here survives the machine
    given = kills = 0
    for seed in range(part, RUNS, 4):
        folder = tmp_path / str(seed)
        folder.mkdir()
        storm = Storm(folder, seed)
        storm.smi.rate = (3, 10, 30)[seed % 3]
        for _ in range(12):
            try:
                storm.turn()
            except Killed:
                storm.node.restart(*storm.smi.owned)
                kills += 1
        storm.converge()
        given += len(storm.smi.owned)
        storm.node.keeper.close()
    assert given > RUNS // 4


def test_a_real_process_of_the_tool_is_driven_alike(tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        f"#!{sys.executable} -S\n"
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "from pathlib import Path\n"
        "from penstock.devices.simulated import simulated\n"
        "from penstock.devices.simulated_mig import SimulatedMig\n"
        f"smi = SimulatedMig(Path({str(tmp_path / 'mig.json')!r}), simulated(1, 'A100', 40 * 10**9, mig=True))\n"
        "done = smi.run('nvidia-smi', *sys.argv[1:])\n"
        "print(done.text, end=''); sys.exit(done.code)\n"
    )
    tool.chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    keeper = MigKeeper(tmp_path, lambda descriptor: Machine(inherited=(descriptor,)))
    given = keeper.give("j1", place("3g.20gb@4"))
    assert isinstance(given, Given)
    assert [(i.profile, i.start, i.uuid) for i in read_state(Machine())[0].instances] == [("3g.20gb", 4, given.uuid)]
    keeper.close()


def test_a_machine_without_the_tool_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    keeper = MigKeeper(tmp_path, lambda _: Machine())
    assert refusal(keeper.give("j1", place("1g.5gb@0"))).endswith("nvidia-smi is not installed")
    keeper.close()
