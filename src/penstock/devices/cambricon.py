"""Cambricon MLU cards, by `cnmon`. Source: Cambricon CNToolkit documentation (MLU_VISIBLE_DEVICES, files)."""

from penstock.devices.by_tools import ByTools, Question, ask, in_order, with_numa, with_words
from penstock.devices.provider import Sources
from penstock.devices.reading import Reading


class Cambricon(ByTools):
    """MLU cards of this machine; a sample is one run of cnmon, as an inventory is."""

    vendor = "cambricon"
    variables = ("MLU_VISIBLE_DEVICES",)
    files = ("/dev/cambricon_dev[0-9]*",)
    signs = ("/dev/cambricon_ctl", "/dev/cambricon_dev[0-9]*")
    shared = ("/dev/cambricon_ctl",)

    def inventory(self, sources: Sources) -> Reading:
        return with_words(with_numa(sources, self.sample(sources)))

    def sample(self, sources: Sources) -> Reading:
        from penstock.devices import cambricon_tools

        return in_order(ask(sources, Question(("cnmon",), cambricon_tools.parse_table)))
