"""What users may not do by way of a notification: reach inner addresses, run commands, hear of others, fake headers."""

import ipaddress
import socket

import pytest

from penstock.client import ApiProblem
from penstock.core.model.access import User
from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.events import NotificationSet
from penstock.core.model.ids import TenantName, UserName
from penstock.core.model.notifications import WebhookRules
from penstock.server.services.notifying import webhook
from penstock.server.services.notifying.errors import NotSent
from penstock.server.services.notifying.rights import may_hear
from penstock.server.services.notifying.webhook import is_public, read_address, resolved
from tests.server.services.notifying.conftest import Place

RULES = WebhookRules(("hooks.example.org", "*.pub.example.org", "port.example.org:8443"), ("chat.internal:8080",))


def refusal(call, *arguments, **more) -> str:
    with pytest.raises((ApiProblem, NotSent)) as refused:
        call(*arguments, **more)
    return str(refused.value)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://evil.example.org/x", "webhooks to evil.example.org are not permitted"),
        ("https://pub.example.org/x", "webhooks to pub.example.org are not permitted"),
        ("https://evilpub.example.org/x", "not permitted"),
        ("https://hooks.example.org.evil.com/x", "not permitted"),
        ("https://hooks.example.org:8443/x", "webhooks to hooks.example.org:8443 are not permitted"),
        ("https://port.example.org/x", "not permitted"),
        ("http://hooks.example.org:443/x", "not permitted by http"),
        ("https://hooks.example.org@evil.com/", "a user or password"),
        ("https://u:p@hooks.example.org/", "a user or password"),
        ("https://evil.com\\@hooks.example.org/", "no URL"),
        ("https://hooks.example.org\r\nX: y/", "no URL"),
        ("https://hooks.example.org/ x", "no URL"),
        ("https://127.0.0.1/", "not permitted"),
        ("https://[::1]/", "not permitted"),
        ("https://2130706433/", "not permitted"),
        ("https://chat.internal/", "not permitted"),
        ("file:///etc/passwd", "no URL of https"),
        ("gopher://hooks.example.org/", "no URL of https"),
        ("//hooks.example.org/", "no URL of https"),
        ("https:///x", "no URL of https"),
        ("https://hooks.example.org:99999/", "no URL"),
        ("https://hooks.example.org/" + "a" * 2_000, "at most 2000"),
        ("", "no URL"),
    ],
)
def test_only_declared_hosts_are_asked(url, why):
    assert why in refusal(read_address, url, RULES)


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.example.org/a?b=c",
        "https://HOOKS.example.org./a",
        "https://a.b.pub.example.org/",
        "https://port.example.org:8443/",
        "http://chat.internal:8080/x",
    ],
)
def test_declared_hosts_may_be_asked_and_only_the_host_is_shown(url):
    found = read_address(url, RULES)
    assert found.shown.endswith(found.host + "/...") or found.shown.endswith(f":{found.port}/...")
    assert found.internal == (found.host == "chat.internal")


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("127.0.0.1", False),
        ("10.0.0.1", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::1", False),
        ("::", False),
        ("::7f00:1", False),
        ("fe80::1", False),
        ("fd00:ec2::254", False),
        ("ff02::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:93.184.216.34", True),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b::a9fe:a9fe", False),
        ("2002:7f00:1::", False),
        ("2002:5db8:d822::", False),
        ("fec0::1", False),
        ("feff::1", False),
        ("::ffff:0:93.184.216.34", False),
        ("64:ff9b::5db8:d822", False),
        ("64:ff9b:1::5db8:d822", False),
        ("2001::1", False),
        ("2001:0:5db8:d822::1", False),
        ("2001:2::1", False),
        ("2001:4:112::1", False),
        ("2001:20::1", False),
        ("2001:db8::1", False),
        ("3fff::1", False),
        ("3fff:1000::1", True),
        ("4000::1", False),
        ("100::1", False),
        ("5f00::1", False),
        ("ff0e::1", False),
        ("::ffff:10.0.0.1", False),
        ("2606:4700::1111", True),
        ("2001:200::1", True),
        ("0.1.2.3", False),
        ("192.0.0.9", False),
        ("192.0.0.171", False),
        ("192.0.2.1", False),
        ("192.88.99.1", False),
        ("198.18.0.1", False),
        ("198.19.255.255", False),
        ("198.51.100.1", False),
        ("203.0.113.1", False),
        ("233.252.0.1", False),
        ("240.0.0.1", False),
        ("8.8.8.8", True),
        ("100.128.0.1", True),
        ("198.20.0.1", True),
    ],
)
def test_addresses_that_only_this_server_can_reach_are_not_public(address, public):
    assert is_public(ipaddress.ip_address(address)) is public


def test_a_declared_name_that_leads_to_loopback_is_not_asked(place: Place):
    wanted = {"channel": "webhook", "to": "https://localhost/hook", "events": ["end"]}
    place.of("ann").set_notification("hook", wanted)
    tested = place.of("ann").test_notification("hook")
    assert (tested.sent, tested.error) == (False, "localhost has an address that is not public")
    place.run("ann", tenant="vision")
    place.pass_time(10)
    (view,) = place.of("ann").notifications().notifications
    assert (view.given_up, view.last_error) == (1, "localhost has an address that is not public")


def test_one_inner_address_among_those_of_a_name_is_enough_and_it_is_resolved_once(monkeypatch):
    asked = []

    def answers(host, port, **_):
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in ("93.184.216.34", "10.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", answers)
    assert "not public" in refusal(resolved, read_address("https://hooks.example.org/", RULES))
    assert asked == ["hooks.example.org"]


def test_the_connection_goes_to_the_address_that_was_checked(place: Place, monkeypatch):
    """A name whose next answer is another address gains nothing."""
    real, asked = socket.getaddrinfo, []

    def answers(host, *rest, **more):
        if host != "rebinding.example.org":
            return real(host, *rest, **more)
        asked.append(host)
        return real("127.0.0.1" if len(asked) == 1 else "192.0.2.1", *rest, **more)

    rules = WebhookRules((), (f"rebinding.example.org:{place.http.port}",))
    monkeypatch.setattr(socket, "getaddrinfo", answers)
    webhook.post(read_address(f"http://rebinding.example.org:{place.http.port}/x", rules), b"{}", {})
    assert len(asked) == 1
    assert [got.headers["host"] for got in place.http.got] == [f"rebinding.example.org:{place.http.port}"]


def test_a_redirect_is_not_followed(place: Place):
    place.hook("ann", "end")
    place.http.statuses, place.http.headers = [302], {"Location": place.http.url + "/elsewhere"}
    place.run("ann", tenant="vision")
    place.pass_time(10)
    assert [got.path for got in place.http.got] == ["/hook/secret-path"]
    (view,) = place.of("ann").notifications().notifications
    assert "answered 302: redirects are not followed" in view.last_error


def test_a_name_of_a_job_puts_nothing_into_the_headers_of_an_email(place: Place):
    place.of("ann").set_notification("mail", {"channel": "email", "to": "ann@example.org", "events": ["end"]})
    place.run("ann", tenant="vision", name="x\r\nBcc: eve@example.org\r\n\r\nHello\x1b[2J")
    place.pass_time(10)
    (mail,) = place.smtp.mails
    assert mail["Bcc"] is None
    assert "Bcc: eve@example.org" in mail["Subject"]
    assert "\x1b" not in mail.get_content()


@pytest.mark.parametrize(
    "to",
    ["ann@evil.org", "a b@example.org", "ann@example.org\r\nBcc: x@y.z", "@example.org", "a@b@example.org"],
)
def test_emails_go_to_declared_domains_alone(place: Place, to):
    wanted = {"channel": "email", "to": to, "events": ["end"]}
    assert "not permitted" in (said := refusal(place.of("ann").set_notification, "mail", wanted)) or "no e-mail" in said


def test_the_place_of_a_webhook_is_shown_and_kept_nowhere_in_the_clear(place: Place):
    made = place.hook("ann", "end")
    place.http.statuses = [500]
    place.run("ann", tenant="vision")
    place.pass_time(10)
    client = place.server.client
    shown = [client.notifications(everyone=True), place.of("ann").notifications(), made.notification]
    shown += [one for one in client.all_events() if "Notification" in type(one.event).__name__]
    assert made.notification.to == f"http://{place.http.host}/..."
    folder = place.server._store._folder
    kept = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    for secret in ("secret-path", made.signing_key):
        assert secret not in str(shown)
        assert secret.encode() not in kept
    chosen = [one.event.subscription for one in client.all_events() if isinstance(one.event, NotificationSet)]
    assert {one.to.sealed for one in chosen} == {""}


def test_nobody_sees_or_changes_the_choices_of_another_user(place: Place):
    place.hook("ann", "end")
    bob = place.of("bob")
    assert bob.notifications().notifications == []
    assert "Notification" not in str(list(bob.all_events()))
    assert "there is no notification 'hook'" in refusal(bob.remove_notification, "hook")
    assert "there is no notification 'hook'" in refusal(bob.test_notification, "hook")
    assert "you may not remove the notifications of others" in refusal(bob.remove_notification, "hook", "ann")
    assert "you may not see the notifications of others" in refusal(bob.notifications, everyone=True)
    place.hook("bob", "end")
    place.run("ann", tenant="vision", name="anns")
    place.pass_time(10)
    assert [got.json["user"] for got in place.http.got] == ["ann"]


@pytest.mark.parametrize(
    ("user", "wanted", "why"),
    [
        ("ann", {"events": ["budget"], "tenant": "vision"}, "you may not hear of the budgets of tenant vision"),
        ("tess", {"events": ["budget"], "tenant": "audio"}, "you may not hear of the budgets of tenant audio"),
        ("tess", {"events": ["budget"]}, "tenant is missing"),
        ("tess", {"events": ["end"], "tenant": "vision"}, "none of the events is about a tenant"),
        ("tess", {"events": ["node_lost"]}, "you may not hear of nodes"),
        ("ann", {"events": ["nodes"]}, "you may not hear of nodes"),
        ("ann", {"events": ["end", "nothing"]}, "events is 'nothing'"),
        ("ann", {"events": []}, "events is []"),
        ("ann", {"channel": "sms"}, "channel is 'sms'"),
        ("ann", {"channel": "command", "to": "root"}, "there is no command 'root' for you"),
        ("ann", {"channel": "command", "to": "/bin/sh"}, "there is no command '/bin/sh' for you"),
        ("ann", {"signing_key": "whsec_short"}, "signing_key"),
        ("ann", {"signing_key": "x" * 48}, "signing_key"),
    ],
)
def test_what_is_not_ones_own_or_makes_no_sense_is_refused(place: Place, user, wanted, why):
    whole = {"channel": "webhook", "to": place.http.url, "events": ["end"]} | wanted
    assert why in refusal(place.of(user).set_notification, "hook", whole)
    assert place.of(user).notifications().notifications == []


def test_a_token_for_some_tenants_or_for_reading_sets_nothing(place: Place):
    wanted = {"channel": "webhook", "to": place.http.url, "events": ["end"]}
    for limits in ({"tenants": ["vision"]}, {"level": "read"}):
        assert "you may not set notifications" in refusal(place.of("ann", **limits).set_notification, "hook", wanted)


def test_who_lost_the_rights_hears_nothing_more(place: Place):
    place.hook("ann", "end")
    place.run("ann", tenant="vision")
    place.server.client.configure({"set": ["user.ann.disabled=true"]})
    place.pass_time(10)
    place.server.client.configure({"set": ["user.ann.disabled=false"]})
    assert place.http.got == []
    (view,) = place.of("ann").notifications().notifications
    assert (view.waiting, view.given_up) == (0, 0)


def test_what_waits_for_a_disabled_user_is_dropped(place: Place):
    place.hook("ann", "end")
    place.run("ann", tenant="vision")
    place.server.advance(10)
    place.server.send_notifications()
    place.server.client.configure({"set": ["user.ann.disabled=true"]})
    place.pass_time()
    place.server.client.configure({"set": ["user.ann.disabled=false"]})
    assert place.http.got == []
    (view,) = place.of("ann").notifications().notifications
    assert (view.waiting, view.last_error) == (0, "its user is removed or disabled")


@pytest.mark.parametrize(
    ("user", "event", "tenant", "may"),
    [
        (User("x", tenants=(("red", "member"),)), "success", "red", True),
        (User("x", tenants=(("red", "viewer"),)), "success", "red", True),
        (User("x", tenants=(("red", "member"),)), "success", "blue", False),
        (User("x", "viewer"), "success", "blue", True),
        (User("x", tenants=(("red", "member"),)), "budget", "red", False),
        (User("x", tenants=(("red", "tenant_admin"),)), "budget", "red", True),
        (User("x", tenants=(("red", "tenant_admin"),)), "exhausted", "blue", False),
        (User("x", "operator"), "budget", "red", False),
        (User("x", "admin"), "budget", "red", True),
        (User("x", "viewer"), "node_lost", "", False),
        (User("x", tenants=(("red", "tenant_admin"),)), "node_lost", "", False),
        (User("x", "operator"), "node_closed", "", True),
        (User("x", "admin", disabled=True), "node_closed", "", False),
        (User("y", "admin"), "success", "red", False),
    ],
)
def test_rights_are_looked_at_for_each_event(user, event, tenant, may):
    config = ClusterConfig(users=(user,))
    assert may_hear(UserName("x"), event, TenantName(tenant), config, frozenset()) is may
    assert may_hear(UserName("x"), event, TenantName(tenant), config, frozenset({"x"}))


def test_who_is_no_operator_any_more_hears_of_no_node(place: Place):
    place.hook("olga", "nodes")
    place.server.client.configure({"set": ["user.olga.role=viewer"]})
    place.server.engine.crash("n2")
    place.pass_time(60)
    place.server.engine.boot("n2")
    place.server.advance(5)
    place.server.client.configure({"set": ["user.olga.role=operator"]})
    assert place.http.got == []


def test_a_removed_user_leaves_nothing_to_the_next_of_that_name(place: Place):
    place.hook("bob", "end")
    place.server.client.configure({"remove": ["user.bob"]})
    place.server.client.configure({"add": ["user.bob"], "set": ["user.bob.tenants.audio=member"]})
    assert place.server.client.notifications(everyone=True).notifications == []
