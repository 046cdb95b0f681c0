"""
The two doors to the policies: HTTP on the admin listener, and the bus.
"""

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.support.fakes import directory
from tests.support.http_client import HTTPClient, Response
from tests.support.made_policies import document, rule
from tests.support.network import Network

DENY, PERMIT = document(rule("deny", {"actionType": {"equals": "create"}})), document(rule("permit"))
ANN = "ann@example.org"
DESK = "domain://msg-node.example.org/policy"


class DoorTests(SynchronousTestCase):
    """
    A node whose policies are pushed.
    """

    def setUp(self) -> None:
        self.state = directory(self)
        policy = {"source": "push", "managers": [ANN]}
        self.net = Network(state=str(self.state), policy=policy)
        self.net.tokens.startService()
        self.net.policies.startService()
        self.token = (self.state / "admin-token").read_text().strip()
        self.http = HTTPClient(self.net, "admin")

    def ask(
        self, method: str, path: str, body: Any = None, token: str | None = None, **headers: str
    ) -> Response:
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        headers["Authorization"] = f"Bearer {self.token if token is None else token}"
        return self.http.request(method, f"/policy/{path}", data, **headers)


class HTTPTests(DoorTests):
    """
    `/policy/...`
    """

    def test_token_file(self) -> None:
        """
        The token is made once, and nobody else can read it.
        """
        self.assertEqual(0o600, (self.state / "admin-token").stat().st_mode & 0o777)
        self.net.tokens.startService()
        self.assertEqual(self.token, (self.state / "admin-token").read_text().strip())

    def test_http_policy_api_needs_an_admin_token_of_the_role(self) -> None:
        """
        Without a token 401, with one of another role 403; nothing is changed, and nothing shown.
        """
        with (self.state / "admin-token").open("a") as file:
            file.write("other onlooker\nboth onlooker policy-manager\n")
        for path, method in (
            ("policies", "GET"),
            ("policies", "PUT"),
            ("stats", "GET"),
            ("rollback", "POST"),
        ):
            for token, status in (("", 401), ("guess", 401), ("other", 403)):
                self.assertEqual(status, self.ask(method, path, DENY, token).status)

        self.assertIsNone(self.net.policies.live)
        self.assertEqual(200, self.ask("GET", "policies", token="both").status)

    def test_put_document_is_live_at_once(self) -> None:
        """
        A document that is put is live at once, and has an ETag to change it by.
        """
        put = self.ask("PUT", "policies", DENY)
        got = self.ask("GET", "policies")

        self.assertEqual((200, DENY), (put.status, got.json()["document"]))
        self.assertEqual(put.headers["ETag"], got.headers["ETag"])
        self.assertEqual(412, self.ask("PUT", "policies", PERMIT, If_Match='"old"').status)
        self.assertEqual(200, self.ask("PUT", "policies", PERMIT, If_Match=got.headers["ETag"]).status)

    def test_a_change_below_api_needs_a_reason_which_is_in_the_audit_log(self) -> None:
        """
        400 without one, and nothing is changed; below `/policy`, for older clients, it is optional.
        """
        path, data = "/api/v1/policy/policies", json.dumps(DENY).encode()
        token = {"Authorization": f"Bearer {self.token}"}

        refused = self.http.request("PUT", path, data, **token)
        self.assertEqual(400, refused.status)
        self.assertIn("reason", refused.json()["description"])
        self.assertIsNone(self.net.policies.live)
        self.assertEqual(200, self.http.request("PUT", path, data, X_Reason="closed today", **token).status)
        self.assertEqual(200, self.ask("PUT", "policies", PERMIT).status)
        self.assertEqual(400, self.ask("PUT", "policies", DENY, X_Reason="x").status)
        lines = [(line["action"], line["reason"]) for line in self.net.operations.audit.recent]
        self.assertEqual([("policy savePolicies", "closed today"), ("policy savePolicies", "")], lines)

    def test_put_wrong(self) -> None:
        """
        What is wrong is told by line, column and place; what was live stays.
        """
        self.ask("PUT", "policies", DENY)

        wrong = self.ask("PUT", "policies", b'[\n {"id": 1, "polices": []}]')

        self.assertEqual(400, wrong.status)
        self.assertIn("document:2:", wrong.json()["problems"][0])
        self.assertEqual(DENY, self.ask("GET", "policies").json()["document"])

    def test_policy_set_is_read_put_and_removed(self) -> None:
        """
        One policy set can be read, put and removed.
        """
        other = {**DENY[0], "id": "t"}
        self.ask("PUT", "policies", DENY)

        self.assertEqual(200, self.ask("PUT", "policies/t", other).status)
        self.assertEqual(other, self.ask("GET", "policies/t").json())
        self.assertEqual(400, self.ask("PUT", "policies/u", other).status)
        self.assertEqual(200, self.ask("DELETE", "policies/s").status)
        self.assertEqual(404, self.ask("DELETE", "policies/s").status)
        self.assertEqual([other], self.ask("GET", "policies").json()["document"]["policySets"])

    def test_policy_of_set(self) -> None:
        """
        One policy of a set can be read, put, changed in part and removed; a set can be changed in part.
        """
        self.ask("PUT", "policies", DENY)
        other = {**DENY[0]["policies"][0], "id": "q"}

        self.assertEqual(200, self.ask("PUT", "policies/s/q", other).status)
        self.assertEqual(other, self.ask("GET", "policies/s/q").json())
        self.assertEqual(200, self.ask("PATCH", "policies/s/q", {"enforce": False, "priority": 3}).status)
        self.assertEqual(200, self.ask("PATCH", "policies/s/q", {"priority": None}).status)
        self.assertEqual({**other, "enforce": False}, self.ask("GET", "policies/s/q").json())
        self.assertEqual(200, self.ask("PATCH", "policies/s", {"description": "ours"}).status)
        self.assertEqual("ours", self.ask("GET", "policies/s").json()["description"])
        self.assertEqual(200, self.ask("DELETE", "policies/s/p").status)
        self.assertEqual(404, self.ask("GET", "policies/s/p").status)
        self.assertEqual(400, self.ask("PATCH", "policies/s/q", {"rules": 3}).status)
        self.assertEqual(400, self.ask("PATCH", "policies/s/q", {"id": "r"}).status)
        self.assertEqual(412, self.ask("PATCH", "policies/s/q", {"priority": 1}, If_Match='"old"').status)

    def test_version_of_set(self) -> None:
        """
        A set that has a version gets the next one when a part of it is changed, or patched without one.
        """
        self.ask("PUT", "policies", [{**DENY[0], "version": 4}])
        policy = {**DENY[0]["policies"][0], "id": "q"}

        for verb, path, body in (
            ("PUT", "policies/s/q", policy),
            ("PATCH", "policies/s/q", {"priority": 3}),
            ("PATCH", "policies/s", {"description": "ours"}),
            ("DELETE", "policies/s/q", None),
            ("PATCH", "policies/s", {"version": 20}),
        ):
            self.assertEqual(200, self.ask(verb, path, body).status, (verb, path))

        self.assertEqual(409, self.ask("PATCH", "policies/s", {"version": 20, "priority": 1}).status)
        self.assertEqual(20, self.ask("GET", "policies/s").json()["version"])

    def test_explain_all(self) -> None:
        """
        Whoever asks can say all that a node would know of a sender; what explain does not know is refused.
        """
        message = {"id": 1, "type": "create", "from": "hyperty://a.com/h1", "to": "hyperty://b.com/h2"}
        known = {
            "fromOwned": {"equals": True},
            "session": {"equals": "runtime://x/1"},
            "topic.owner": {"equals": "other"},
            "topic.ownerUser": {"equals": "bob@b.com"},
            "srcIDP": {"equals": "x"},
            "scopes": {"contains": "speak"},
        }
        asked = {"message": message, "document": document(rule("permit", known)), "identity": ANN}
        asked |= {"provider": "x", "scopes": ["speak"], "session": "runtime://x/1"}

        self.assertEqual("notApplicable", self.ask("POST", "explain", asked).json()["effect"])
        asked |= {"fromOwned": True, "topicOwner": "other", "topicOwnerUser": "bob@b.com"}
        self.assertEqual("permit", self.ask("POST", "explain", asked).json()["effect"])
        wrongs = (
            {"colour": 1},
            {"scopes": "speak"},
            {"fromOwned": "yes"},
            {"identity": ""},
            {"topicOwner": 1},
        )
        for wrong in wrongs:
            refused = self.ask("POST", "explain", {**asked, **wrong})
            self.assertEqual(400, refused.status)
            self.assertIn(next(iter(wrong)), refused.json()["desc"])

    def test_group_members_come_and_go(self) -> None:
        """
        Groups and their members come and go; one that a rule names cannot go.
        """
        self.assertEqual(200, self.ask("PUT", "groups/family", ["a@x"]).status)
        self.assertEqual(200, self.ask("PUT", "groups/family/b@x").status)
        self.assertEqual({"family": ["a@x", "b@x"]}, self.ask("GET", "groups").json())
        self.assertEqual(200, self.ask("DELETE", "groups/family/a@x").status)
        self.assertEqual(409, self.ask("PUT", "groups/family", []).status)
        uses = document(rule("permit", {"srcUsername": {"in": "family"}}))[0]
        self.assertEqual(200, self.ask("PUT", "policies/s", uses).status)

        gone = self.ask("DELETE", "groups/family")

        self.assertEqual(400, gone.status)
        self.assertEqual({"family": ["b@x"]}, self.ask("GET", "groups").json())

    def test_document_is_checked_and_message_explained(self) -> None:
        """
        A document can be checked, and a message explained, by it or by what is live.
        """
        message = {"id": 1, "type": "create", "from": "hyperty://a.com/h1", "to": "hyperty://b.com/h2"}

        self.assertEqual(200, self.ask("POST", "validate", DENY).status)
        self.assertEqual(400, self.ask("POST", "validate", b"[").status)
        self.assertEqual(404, self.ask("POST", "explain", {"message": message}).status)
        why = self.ask("POST", "explain", {"message": message, "document": DENY}).json()
        self.ask("PUT", "policies", PERMIT)
        live = self.ask("POST", "explain", {"message": message, "identity": ANN}).json()

        self.assertEqual(("deny", "s/p/r", "permit"), (why["effect"], why["path"], live["effect"]))
        self.assertEqual(400, self.ask("POST", "explain", {"message": message, "point": "up"}).status)
        self.assertEqual(400, self.ask("POST", "explain", {"message": 3}).status)

    def test_dry_run(self) -> None:
        """
        A document is tried beside what is live, until that is ended.
        """
        self.ask("PUT", "policies", PERMIT)
        self.assertEqual(0, self.ask("POST", "dry-run", DENY).json()["different"])
        a = self.net.node
        client = _client(a)
        client.post("runtime://example.org/a", "create")

        self.assertEqual(1, self.ask("GET", "dry-run").json()["rules"]["s/p/r"])
        self.assertEqual({"revision": None}, self.ask("DELETE", "dry-run").json())

    def test_versions(self) -> None:
        """
        Versions are listed, and one can be live again.
        """
        for made in (DENY, PERMIT):
            self.ask("PUT", "policies", made)

        back = self.ask("POST", "rollback", {"number": 1})

        self.assertEqual(3, back.json()["number"])
        self.assertEqual([1, 2, 3], [version["number"] for version in self.ask("GET", "versions").json()])
        self.assertEqual(DENY, self.ask("GET", "policies").json()["document"])
        self.assertEqual(404, self.ask("POST", "rollback", {"number": 9}).status)

    def test_who_looks_sees_how_often_which_rule_decided(self) -> None:
        """
        Who looks sees how often which rule decided, what it refused last, and which never did.
        """
        self.ask(
            "PUT",
            "policies",
            document(*DENY[0]["policies"][0]["rules"], rule("deny", {"msgId": {"equals": 0}}, "x")),
        )
        client = _client(self.net.node)
        client.post("runtime://example.org/a", "create")

        stats, refused = self.ask("GET", "stats").json(), self.ask("GET", "decisions").json()
        page = self.http.request("GET", "/metrics").body.decode()

        self.assertEqual(["s/p/x"], stats["unused"])
        self.assertEqual(("deny", "s/p/r", 403), tuple(refused[0][key] for key in ("effect", "rule", "code")))
        self.assertIn('msgnode_policy_decisions_total{effect="deny",point="in"} 1.0', page)
        self.assertIn('msgnode_policy_rule_hits_total{rule="s/p/r"} 1.0', page)
        self.assertIn("msgnode_policy_version 1.0", page)

    def test_nothing_here(self) -> None:
        """
        Another path is 404 with what there is, another method 405.
        """
        self.assertIn("rollback", self.ask("GET", "x").json()["desc"])
        wrong = self.ask("POST", "policies", [])
        self.assertEqual((405, "GET, PUT"), (wrong.status, wrong.headers["Allow"]))


class BusTests(DoorTests):
    """
    `execute` at domain://msg-node.<domain>/policy.
    """

    def execute(self, client: Any, method: str, **params: Any) -> dict[str, Any]:
        body = {"method": method, "params": params}
        reply: dict[str, Any] = client.ask(type="execute", to=DESK, body=body)
        self.assertEqual(DESK, reply["from"])
        return reply["body"]

    def test_policy_responder_refuses_unverified_identity(self) -> None:
        """
        Who has no verified identity, or another one, is refused; what a body claims is nothing.
        """
        claim = {"identity": {"idp": "x", "userProfile": {"username": ANN}}, "method": "versions"}
        for identity in ("", "eve@example.org"):
            client = _client(self.net.node, identity)
            self.assertEqual(403, self.execute(client, "savePolicies", document=DENY)["code"])
            self.assertEqual(403, client.ask(type="execute", to=DESK, body=claim)["body"]["code"])
        self.assertIsNone(self.net.policies.live)

    def test_who_had_a_manager_session_before_the_manager_came(self) -> None:
        """
        Who had a manager's session before the manager came has no part in it.
        """
        eve = _client(self.net.node)
        _client(self.net.node, ANN)
        body = {"method": "savePolicies", "params": {"document": DENY}}

        self.assertEqual(401, eve.ask(type="execute", to=DESK, body=body)["body"]["code"])
        self.assertIsNone(self.net.policies.live)

    def test_manager_adds_and_removes_policies_and_members(self) -> None:
        """
        A manager adds and removes policies and members of groups, with the names runtimes know.
        """
        ann = _client(self.net.node, ANN)

        self.assertEqual(200, self.execute(ann, "createGroup", groupName="family")["code"])
        self.assertEqual(200, self.execute(ann, "addToGroup", groupName="family", userEmail="a@x")["code"])
        self.assertEqual(["family"], self.execute(ann, "getGroupsNames")["value"])
        policy = DENY[0]["policies"][0]
        added = self.execute(ann, "addPolicy", key="mine", policy=policy, combiningAlgorithm="allowOverrides")
        self.assertEqual((200, "execute"), (added["code"], added["type"]))
        self.assertEqual("mine", self.execute(ann, "policy", key="mine")["value"]["id"])
        self.assertEqual(403, _client(self.net.node, "", "b").ask(type="create", to="x:1")["body"]["code"])
        self.assertEqual(200, self.execute(ann, "removePolicy", key="mine")["code"])
        self.assertEqual(404, self.execute(ann, "removePolicy", key="mine")["code"])
        self.assertEqual(404, self.execute(ann, "nonsense")["code"])

    def test_not_locked_out(self) -> None:
        """
        Policies that deny everything do not keep a manager from taking them back.
        """
        ann = _client(self.net.node, ANN)
        self.execute(ann, "savePolicies", document=document(rule("deny")))
        again = _client(self.net.node, ANN)

        self.assertEqual(200, self.execute(again, "savePolicies", document=[])["code"])

    def test_what_is_wrong_with_a_document_comes_back_as_a_list(self) -> None:
        """
        What is wrong with a document comes back as a list of problems.
        """
        ann = _client(self.net.node, ANN)

        wrong = self.execute(ann, "savePolicies", document=document(rule("prmit")))

        self.assertEqual(400, wrong["code"])
        self.assertIn("/0/policies/0/rules/0/effect", wrong["problems"][0])


def _client(node: Any, identity: str = "", name: str = "a") -> Any:
    client = node.client()
    client.identity = identity
    client.open(f"runtime://example.org/{name}")
    return client
