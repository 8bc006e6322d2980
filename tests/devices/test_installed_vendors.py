"""Providers that installed packages offer: a small distribution on the path, as pip leaves it behind."""

import sys
from pathlib import Path

import pytest

from penstock.devices import installed
from penstock.devices.provider import Output
from penstock.devices.reading import DeviceFacts
from penstock.devices.vendors import OWN, PROVIDERS, installed_providers
from penstock.testing.devices import Recorded, check_provider

MODULE = """
from penstock.devices.by_tools import ByTools, Question, ask
from penstock.devices.reading import DeviceFacts, Finding, Reading


def parse(text):
    whole = text.endswith("ok\\n")
    rows = [line.split() for line in text.splitlines()[:-1]] if whole else []
    devices = tuple(DeviceFacts(index=int(row[0]), model=row[1], memory_bytes=int(row[2])) for row in rows)
    return Reading(devices=devices, findings=() if whole else (Finding(code="cut", text="no ok at the end"),))


class Acme(ByTools):
    vendor = "acme"
    variables = ("ACME_VISIBLE_DEVICES",)
    files = ("/dev/acme[0-9]*",)
    signs = files

    def inventory(self, sources):
        return ask(sources, Question(("acme-smi", "-q"), parse))

    sample = inventory


class Other(Acme):
    vendor = "other"


class Bare:
    vendor = "bare"


def nothing():
    raise AssertionError("an entry point that is no class is taken as it is")


made = Acme()
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return a function that installs a distribution with entry points."""
    monkeypatch.syspath_prepend(str(tmp_path))
    installed = 0

    def distribution(points: dict[str, str], module: str = "acme_devices", text: str = MODULE) -> None:
        nonlocal installed
        installed += 1
        folder: Path = tmp_path / f"package_{installed}-1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Name: package-{installed}\nVersion: 1\n")
        lines = "".join(f"{name} = {place}\n" for name, place in points.items())
        (folder / "entry_points.txt").write_text(f"[penstock.devices]\n{lines}")
        (tmp_path / f"{module}.py").write_text(text)
        monkeypatch.delitem(sys.modules, module, raising=False)

    return distribution


def test_a_package_adds_a_vendor_that_passes_the_checks(install):
    install({"acme": "acme_devices:Acme"})
    (provider,), findings = installed_providers()
    assert findings == ()
    sources = Recorded({("acme-smi", "-q"): "0 A1 1024\n1 A1 1024\nok\n"}, {"/dev/acme0": ""})
    check_provider(provider, sources, [DeviceFacts(index=at, model="A1", memory_bytes=1024) for at in range(2)])
    assert provider.is_present(sources)


def test_an_entry_point_may_be_a_provider_itself(install):
    install({"acme": "acme_devices:made"})
    assert [provider.vendor for provider in installed_providers().providers] == ["acme"]


BROKEN = {
    "cannot be loaded: ModuleNotFoundError": {"lost": "no_such_module:Acme"},
    "cannot be loaded: AttributeError": {"lost": "acme_devices:NoSuchName"},
    "calls its vendor 'other'": {"lost": "acme_devices:Other"},
    "has no variables, files, is_present": {"bare": "acme_devices:Bare"},
    "has no variables": {"lost": "acme_devices:nothing"},
    "is for a vendor that Penstock has a provider for": {"amd": "acme_devices:Acme"},
}


@pytest.mark.parametrize("fault", BROKEN)
def test_one_that_cannot_be_taken_is_named_and_the_others_work(install, fault):
    install({"acme": "acme_devices:Acme", **BROKEN[fault]})
    providers, findings = installed_providers()
    (name,) = BROKEN[fault]
    assert [provider.vendor for provider in providers] == ["acme"]
    assert [(finding.code, f"'{name}'" in finding.text, fault in finding.text) for finding in findings] == [
        ("tool_failed", True, True)
    ]


def test_a_provider_that_cannot_be_loaded_is_named_where_devices_are_listed(install):
    install({"lost": "no_such_module:Acme"})
    assert "the device provider 'lost' (no_such_module:Acme) cannot be loaded" in installed.discovered().note


def test_code_that_fails_when_it_is_imported_costs_that_provider_alone(install):
    install({"acme": "acme_devices:Acme"})
    install({"broken": "broken_devices:X"}, "broken_devices", "1 / 0\n")
    providers, (finding,) = installed_providers()
    assert [provider.vendor for provider in providers] == ["acme"]
    assert "ZeroDivisionError" in finding.text


def test_two_packages_with_one_vendor_have_none(install):
    install({"acme": "acme_devices:Acme"})
    install({"acme": "acme_devices:made"})
    providers, (finding,) = installed_providers()
    assert providers == ()
    assert "is offered by more than one package: acme_devices:Acme, acme_devices:made" in finding.text


def test_one_package_that_is_on_the_path_twice_is_one(install):
    install({"acme": "acme_devices:Acme"})
    install({"acme": "acme_devices:Acme"})
    assert [provider.vendor for provider in installed_providers().providers] == ["acme"]


def test_without_packages_there_are_none():
    assert installed_providers() == ((), ())


def test_each_vendor_has_one_provider():
    vendors = [provider.vendor for provider in PROVIDERS]
    assert len(set(vendors)) == len(vendors)
    assert set(vendors) < OWN
    variables = [variable for provider in PROVIDERS for variable in provider.variables]
    assert len(set(variables)) == len(variables)


def test_what_is_taken_for_a_failure_of_a_tool_names_it(install):
    install({"acme": "acme_devices:Acme"})
    (provider,) = installed_providers().providers
    reading = provider.inventory(Recorded({("acme-smi", "-q"): Output("", "no such bus\n", 4)}))
    assert [finding.text for finding in reading.findings] == ["'acme-smi -q' ended with 4: no such bus"]
