"""Credentials: a kubeconfig, the pod's own, and tokens that do not hold for ever."""

import asyncio
import base64
import json
import ssl
import stat
import sys
import time

import pytest

from penstock.engines.kubernetes.api import credentials as module
from penstock.engines.kubernetes.api.credentials import (
    PluginToken,
    TokenFile,
    from_kubeconfig,
    from_kubeconfigs,
    in_cluster,
)
from penstock.engines.kubernetes.api.errors import BadCredentials


def kubeconfig(tmp_path, user=None, cluster=None, **top):
    told = {
        "current-context": "mine",
        "contexts": [{"name": "mine", "context": {"cluster": "lab", "user": "me", "namespace": "vision"}}],
        "clusters": [{"name": "lab", "cluster": {"server": "http://127.0.0.1:8001", **(cluster or {})}}],
        "users": [{"name": "me", "user": user or {}}],
        **top,
    }
    path = tmp_path / "config"
    path.write_text(json.dumps(told))
    return path


def token_of(access):
    return asyncio.run(access.tokens.token())


def plugin(tmp_path, body):
    path = tmp_path / "plugin"
    path.write_text(f"#!{sys.executable}\n{body}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_token_that_stands_there(tmp_path):
    access = from_kubeconfig(kubeconfig(tmp_path, {"token": "abc"}))
    assert (access.server, access.namespace, access.security) == ("http://127.0.0.1:8001", "vision", None)
    assert token_of(access) == "abc"


def test_a_token_file_lies_beside_the_kubeconfig(tmp_path):
    (tmp_path / "secret").write_text("def\n")
    assert token_of(from_kubeconfig(kubeconfig(tmp_path, {"tokenFile": "secret"}))) == "def"


def test_nobody_in_particular(tmp_path):
    assert token_of(from_kubeconfig(kubeconfig(tmp_path))) == ""


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"current-context": ""}, "no current-context"),
        ({"current-context": "other"}, "no context 'other'"),
        ({"clusters": []}, "no cluster 'lab'"),
        ({"users": []}, "no user 'me'"),
        ({"users": 3}, "no user 'me'"),
        ({"clusters": [{"name": "lab"}]}, "cluster 'lab' of .* has no server address: ''"),
    ],
)
def test_what_is_missing_is_named(tmp_path, change, text):
    with pytest.raises(BadCredentials, match=text):
        from_kubeconfig(kubeconfig(tmp_path, **change))


def part(folder, current="", **named):
    """Write a kubeconfig with `context_NAME`, `cluster_NAME` and `user_NAME`, each alone in its own folder."""
    told = {"current-context": current}
    for word, fields in named.items():
        kind, _, name = word.partition("_")
        told.setdefault(f"{kind}s", []).append({"name": name, kind: fields})
    folder.mkdir()
    path = folder / "config"
    path.write_text(json.dumps(told))
    return path


MINE = {
    "context_mine": {"cluster": "lab", "user": "me"},
    "cluster_lab": {"server": "http://lab"},
    "user_me": {"token": "a"},
}
OTHER = {"context_other": {"cluster": "far", "user": "me"}, "cluster_far": {"server": "http://far"}}


@pytest.mark.parametrize(
    ("first", "second", "context", "expected"),
    [
        ({"current": "mine", **MINE}, {"current": "other", **OTHER}, "", ("http://lab", "a", "default")),
        ({**MINE}, {"current": "other", **OTHER}, "", ("http://far", "a", "default")),
        ({"current": "mine", **MINE}, {**OTHER}, "other", ("http://far", "a", "default")),
        ({"current": "mine", "context_mine": MINE["context_mine"]}, MINE, "", ("http://lab", "a", "default")),
        (
            {"current": "mine", **MINE},
            {"user_me": {"token": "b"}, "cluster_lab": {"server": "http://b"}},
            "",
            ("http://lab", "a", "default"),
        ),
        (
            {"current": "mine", **MINE},
            {"context_mine": {"cluster": "lab", "user": "me", "namespace": "n"}},
            "",
            ("http://lab", "a", "default"),  # an entry counts whole: nothing is added to it
        ),
        ({"current": "mine", **MINE, "user_me": {}}, {"user_me": {"token": "b"}}, "", ("http://lab", "", "default")),
    ],
)
def test_of_several_kubeconfigs_the_first_that_names_something_counts(tmp_path, first, second, context, expected):
    access = from_kubeconfigs([part(tmp_path / "1", **first), part(tmp_path / "2", **second)], context)
    assert (access.server, token_of(access), access.namespace) == expected


def test_paths_in_kubeconfigs_start_at_the_folder_of_their_own(tmp_path):
    plugin(tmp_path, "")
    user = {"tokenFile": "secret"}
    lab = {"server": "https://lab", "certificate-authority": "ca.crt"}
    both = [part(tmp_path / "1", "mine", **(MINE | {"user_me": user})), part(tmp_path / "2", cluster_far=lab)]
    (tmp_path / "1" / "secret").write_text("first")
    assert token_of(from_kubeconfigs(both[::-1])) == "first"
    far = part(tmp_path / "3", context_mine={"cluster": "far", "user": "me"})
    with pytest.raises(BadCredentials, match=r"certificate-authority of .*/2/config cannot be read: .*/2/ca.crt"):
        from_kubeconfigs([far, *both])


def test_kubeconfigs_that_do_not_exist_are_left_out_unless_there_is_no_other(tmp_path):
    mine = part(tmp_path / "1", "mine", **MINE)
    assert from_kubeconfigs([tmp_path / "absent", mine]).server == "http://lab"
    with pytest.raises(BadCredentials, match=r"none of the kubeconfigs .*/absent:.*/gone exists"):
        from_kubeconfigs([tmp_path / "absent", tmp_path / "gone"])
    (tmp_path / "bad").write_text("[")
    with pytest.raises(BadCredentials, match="bad cannot be read"):
        from_kubeconfigs([mine, tmp_path / "bad"])
    with pytest.raises(BadCredentials, match="65 kubeconfigs are given, expected 64 at most"):
        from_kubeconfigs([mine] * 65)


def test_what_no_kubeconfig_has_is_said_of_all(tmp_path):
    both = [part(tmp_path / "1", "lost", **MINE), part(tmp_path / "2", **OTHER)]
    with pytest.raises(BadCredentials, match=r"the kubeconfig .*/1/config:.*/2/config has no context 'lost'"):
        from_kubeconfigs(both)


@pytest.mark.parametrize(
    ("user", "cluster", "text"),
    [
        ({"exec": {"apiVersion": "v0", "command": "x"}}, {}, "speaks 'v0'"),
        ({"username": "u", "password": "p"}, {}, "Kubernetes has removed"),
        ({}, {"server": "lab"}, "no server address: 'lab'"),
        (
            {},
            {"server": "https://lab", "certificate-authority": "absent"},
            "certificate-authority of .* cannot be read",
        ),
        ({}, {"server": "https://lab", "certificate-authority-data": "!!"}, "cannot be used"),
        (
            {},
            {"server": "https://lab", "certificate-authority-data": base64.b64encode(b"no").decode()},
            "cannot be used",
        ),
    ],
)
def test_what_cannot_be_used_is_said(tmp_path, user, cluster, text):
    with pytest.raises(BadCredentials, match=text):
        from_kubeconfig(kubeconfig(tmp_path, user, cluster))


@pytest.mark.parametrize("text", ["[", "nothing", ""])
def test_what_is_no_kubeconfig_is_said(tmp_path, text):
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(BadCredentials, match=r"cannot be read|no current-context"):
        from_kubeconfig(path)
    with pytest.raises(BadCredentials, match="cannot be read"):
        from_kubeconfig(tmp_path / "absent")


def test_a_server_is_verified_unless_the_kubeconfig_says_otherwise(tmp_path):
    wanted = from_kubeconfig(kubeconfig(tmp_path, cluster={"server": "https://lab"})).security
    careless = from_kubeconfig(
        kubeconfig(tmp_path, cluster={"server": "https://lab", "insecure-skip-tls-verify": True})
    ).security
    assert (wanted.verify_mode, wanted.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert (careless.verify_mode, careless.check_hostname) == (ssl.CERT_NONE, False)


def test_a_token_file_is_read_again_after_a_while(tmp_path, monkeypatch):
    path = tmp_path / "token"
    path.write_text("one")
    tokens = TokenFile(path)
    assert asyncio.run(tokens.token()) == "one"
    path.write_text("two")
    assert asyncio.run(tokens.token()) == "one"
    later_s = time.monotonic() + module.FILE_HOLDS_S + 1
    monkeypatch.setattr(module.time, "monotonic", lambda: later_s)
    assert asyncio.run(tokens.token()) == "two"
    path.unlink()
    tokens.refused()
    with pytest.raises(BadCredentials, match="cannot be read"):
        asyncio.run(tokens.token())


ANSWERS = """
import json, os, pathlib
count = pathlib.Path(__file__).with_suffix(".count")
count.write_text(str(int(count.read_text()) + 1 if count.exists() else 1))
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
until = os.environ.get("UNTIL")
status = {"token": f"{os.environ['WHO']}-{count.read_text()}", **({"expirationTimestamp": until} if until else {})}
print(json.dumps({"apiVersion": info["apiVersion"], "kind": "ExecCredential", "status": status}))
"""


def test_a_plugin_is_asked_once_and_again_when_its_token_expires_or_is_refused(tmp_path):
    plugin(tmp_path, ANSWERS)
    told = {"apiVersion": module.EXEC_VERSIONS[0], "command": "./plugin", "env": [{"name": "WHO", "value": "me"}]}
    access = from_kubeconfig(kubeconfig(tmp_path, {"exec": told}))
    assert [token_of(access), token_of(access)] == ["me-1", "me-1"]
    access.tokens.refused()
    assert token_of(access) == "me-2"
    told["env"].append({"name": "UNTIL", "value": "2020-01-01T00:00:00Z"})
    access = from_kubeconfig(kubeconfig(tmp_path, {"exec": told}))
    assert [token_of(access), token_of(access)] == ["me-3", "me-4"]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("import sys; sys.exit('no such login')", "ended with 1: no such login"),
        ("print('hello')", "did not print an ExecCredential"),
        ('print(\'{"status": {"token": ""}}\')', "printed no token"),
        ('print(\'{"status": {"token": "x", "expirationTimestamp": "soon"}}\')', "did not print"),
        ("import time; time.sleep(60)", "did not answer within 0 s"),
    ],
)
def test_a_plugin_that_gives_no_token_is_an_error(tmp_path, monkeypatch, body, text):
    if "sleep" in body:
        monkeypatch.setattr(module, "PLUGIN_WAIT_S", 0.2)
    tokens = PluginToken([str(plugin(tmp_path, body))], {}, module.EXEC_VERSIONS[0])
    with pytest.raises(BadCredentials, match=text):
        asyncio.run(tokens.token())


@pytest.mark.parametrize("name", ["./absent", "absent-plugin"])
def test_a_plugin_that_is_not_installed_says_where_to_get_it(name):
    tokens = PluginToken([name], {}, module.EXEC_VERSIONS[0], "see example.com")
    with pytest.raises(BadCredentials, match=r"cannot be run|not installed") as caught:
        asyncio.run(tokens.token())
    assert caught.value.hint == "see example.com"


def test_a_pod_has_the_credentials_of_its_service_account(tmp_path):
    for name, text in (("token", "pod-token"), ("namespace", "penstock-system")):
        (tmp_path / name).write_text(text)
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    with pytest.raises(BadCredentials, match=r"ca\.crt cannot be used"):
        in_cluster(tmp_path, environment)
    (tmp_path / "ca.crt").write_text(ssl.get_server_certificate.__doc__ or "")
    with pytest.raises(BadCredentials, match=r"ca\.crt cannot be used"):
        in_cluster(tmp_path, environment)


def test_outside_of_a_pod_there_is_no_service_account(tmp_path):
    with pytest.raises(BadCredentials, match="no pod of a cluster") as caught:
        in_cluster(tmp_path, {})
    assert "--kubeconfig" in caught.value.hint
