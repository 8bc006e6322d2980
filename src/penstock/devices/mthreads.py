"""Moore Threads GPUs, by `mthreads-gmi`.

No document says which file is whose: none is closed. Source: MUSA documentation (MUSA_VISIBLE_DEVICES); MT container
toolkit (its runtime, and the variable of it).
"""

from collections.abc import Sequence

from penstock.core.model.resources import Device
from penstock.devices.by_tools import ByTools, Question, ask, in_order, with_numa, with_words
from penstock.devices.provider import Sources
from penstock.devices.reading import Reading


class MooreThreads(ByTools):
    """Moore Threads GPUs of this machine; a sample is one run of mthreads-gmi, as an inventory is."""

    vendor = "mthreads"
    variables = ("MUSA_VISIBLE_DEVICES",)
    signs = ("/dev/mtgpu*", "/sys/module/mtgpu")

    def inventory(self, sources: Sources) -> Reading:
        return with_words(with_numa(sources, self.sample(sources)))

    def sample(self, sources: Sources) -> Reading:
        from penstock.devices import mthreads_tools

        return in_order(ask(sources, Question(("mthreads-gmi",), mthreads_tools.parse_table)))

    def container_flags(self, given: Sequence[Device]) -> tuple[str, ...]:
        shown = self.words_of(given)
        return ("--runtime=mthreads", f"--env=MTHREADS_VISIBLE_DEVICES={shown}") if shown else ()
