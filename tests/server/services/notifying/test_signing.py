"""Webhooks of jobs are signed with a key of the job, its user or its tenant, as the documented receiver checks them."""

import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.client import ApiProblem
from penstock.server.services.notifying.webhook import KEYS_MAX, keys_of, new_key
from tests.server.services.notifying.conftest import Place
from tests.server.services.notifying.receivers import Got
from tests.server.services.notifying.test_places import forget_places

DOCS = Path(__file__).parents[4] / "docs" / "notifications.md"
USUAL = "WEBHOOK_SIGNING_KEY"
Checked = Callable[..., bytes]


@pytest.fixture(scope="module")
def checked() -> Checked:
    """The receiver of the docs."""
    found = re.search(r"( {4}import base64.*?\n)(?=\S)", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    names: dict[str, Checked] = {}
    exec(textwrap.dedent(found[1]), names)
    return names["checked"]


@pytest.fixture(autouse=True)
def _places_and_secrets_of_this_test_alone(place: Place) -> Iterator[None]:
    yield
    forget_places(place)
    for user, tenant in (("ann", ""), ("tess", "vision")):
        for one in place.of(user).secrets():
            if one.tenant == tenant:
                place.of(user).remove_secret(one.name, tenant=tenant)


def right(place: Place, checked: Checked, got: Got, key: str) -> bool:
    """Return whether the receiver of the docs takes it, at the time of the server, which is virtual here."""
    late = abs(place.server.engine.clock.unix_ms() / 1000 - int(got.headers["webhook-timestamp"]))
    assert late < 60
    try:
        return checked(got.headers, got.body, key, tolerance_s=10**12) == got.body
    except ValueError:
        return False


def sent(place: Place, **notify: object) -> Got:
    place.run("ann", tenant="vision", notify={"webhook": place.http.url, **notify})
    place.pass_time(10)
    return place.http.got[-1]


def test_a_job_names_the_key_that_signs(place: Place, checked: Checked):
    key, other = new_key(), new_key()
    place.of("ann").set_secret("CI_KEY", f"{key}\n")
    place.of("ann").set_secret(USUAL, other)
    got = sent(place, signing_key={"secret": "CI_KEY"})
    assert right(place, checked, got, key)
    assert not right(place, checked, got, other)
    assert not right(place, checked, got._replace(body=got.body.replace(b"succeeded", b"failed")), key)
    assert key not in got.body.decode()


def test_without_one_the_key_of_the_user_or_the_tenant_signs(place: Place, checked: Checked):
    own, shared = new_key(), new_key()
    assert "webhook-signature" not in sent(place).headers
    place.of("tess").set_secret(USUAL, shared, tenant="vision")
    assert right(place, checked, sent(place), shared)
    place.of("ann").set_secret(USUAL, own)
    assert right(place, checked, sent(place), own)


def test_while_keys_are_exchanged_both_sign(place: Place, checked: Checked):
    former, new = new_key(), new_key()
    place.of("ann").set_secret("CI_KEY", f"{new}\n{former}\n")
    got = sent(place, signing_key={"secret": "CI_KEY"})
    assert len(got.headers["webhook-signature"].split()) == 2
    assert right(place, checked, got, former)
    assert right(place, checked, got, new)


def test_with_a_secret_that_is_no_key_nothing_is_sent_unsigned(place: Place):
    place.of("ann").set_secret("CI_KEY", "whsec_tooshort")
    place.run("ann", tenant="vision", notify={"webhook": place.http.url, "signing_key": {"secret": "CI_KEY"}})
    place.pass_time(10)
    assert place.http.got == []
    (view,) = place.of("ann").notifications().of_jobs
    assert view.given_up == 1
    assert view.last_error.startswith("secret CI_KEY is no key: expected whsec_")
    assert "tooshort" not in view.last_error


def test_a_key_that_is_not_there_is_refused_and_one_that_is_needed_is_kept(place: Place):
    notify = {"webhook": place.http.url, "signing_key": {"secret": "CI_KEY"}}
    with pytest.raises(ApiProblem, match="there is no secret 'CI_KEY'"):
        place.of("ann").submit_request({"command": "true", "tenant": "vision", "notify": notify})
    place.of("ann").set_secret("CI_KEY", new_key())
    job = place.run("ann", tenant="vision", notify=notify)
    with pytest.raises(ApiProblem, match=f"needed by job {job}"):
        place.of("ann").remove_secret("CI_KEY")


@pytest.mark.parametrize("text", ["", "abc", "whsec_", "whsec_AAAA", "whsec_" + "A" * 120, "x" * 48, "whsec_é"])
def test_what_is_no_key_is_none(text):
    with pytest.raises(ValueError, match="expected whsec_"):
        keys_of(text)


def test_a_secret_has_a_bounded_number_of_keys():
    keys = [new_key() for _ in range(KEYS_MAX + 1)]
    assert keys_of(" ".join(keys[:-1])) == keys[:-1]
    with pytest.raises(ValueError, match=f"at most {KEYS_MAX}"):
        keys_of(" ".join(keys))
