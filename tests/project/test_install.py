"""constraints.txt pins every package that requirements.txt brings; that is what is installed."""

import importlib.metadata as metadata
import re

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests import ROOT


def requirements(name, **place):
    """The requirements of a file that hold for this Python, or for another ``place``, by name."""
    lines = (line.partition("#")[0].strip() for line in (ROOT / name).read_text().splitlines())
    found = [Requirement(line) for line in lines if line and not line.startswith("-")]
    found = [r for r in found if not r.marker or r.marker.evaluate(place)]
    named = {canonicalize_name(r.name): r for r in found}
    assert len(named) == len(found), "a package has two versions"
    return named


def closure(wanted):
    """Names of the packages that these requirements bring here, with their versions."""
    versions, todo = {}, [(r, extra) for r in wanted for extra in ("", *r.extras)]
    while todo:
        requirement, extra = todo.pop()
        name = canonicalize_name(requirement.name)
        if (name, extra) in versions:
            continue
        found = metadata.distribution(name)
        versions[name, extra] = Version(found.version).public
        for line in found.requires or ():
            brought = Requirement(line)
            if not brought.marker or brought.marker.evaluate({"extra": extra}):
                todo += [(brought, more) for more in ("", *brought.extras)]
    return {name: version for (name, _), version in versions.items()}


def test_every_package_that_the_requirements_bring_is_pinned_to_what_is_installed():
    pins = {name: str(r.specifier) for name, r in requirements("constraints.txt").items()}
    brought = closure(requirements("requirements.txt").values())
    assert len(brought) > 80
    assert {name: f"=={version}" for name, version in brought.items()}.items() <= pins.items()


def test_the_constraints_repeat_the_requirements():
    pins = requirements("constraints.txt")
    for name, requirement in requirements("requirements.txt").items():
        assert pins[name].specifier == requirement.specifier, "run `make constraints`"


def test_every_install_reads_the_constraints_and_asks_no_index_by_name():
    assert "\n-c constraints.txt\n" in (ROOT / "requirements.txt").read_text()
    for name in ("README.md", "CONTRIBUTING.md", "Makefile"):
        assert "-r requirements.txt -c" not in (ROOT / name).read_text("utf-8")
    for name in ("requirements.txt", "constraints.txt"):
        assert not re.search(r"://|--(extra-)?index|--find-links|--hash", (ROOT / name).read_text())


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13", "3.14"])
@pytest.mark.parametrize("system", ["linux", "darwin", "win32"])
def test_a_package_has_one_version_on_each_supported_python(python, system):
    place = {"python_version": python, "python_full_version": f"{python}.0"}
    assert len(requirements("constraints.txt", sys_platform=system, **place)) > 80
