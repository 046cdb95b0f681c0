"""
The global registry through the node, and the records that runtimes sign.
"""

import hashlib
import json
from base64 import b64encode, urlsafe_b64encode
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from msgnode.backends.registry.global_record import (
    WrongRecord,
    check_record,
    guid_of,
    pbkdf2_of_text,
    read_record,
)
from msgnode.devregistry.database import connect
from msgnode.devregistry.fault_injection import Fault
from msgnode.devregistry.global_api import GlobalApi
from tests.support.back_ends import Scripted, http
from tests.support.registry import GLOBAL, RegistryNode

ANN = "runtime://example.org/ann"
GRAPH_CONNECTOR = Path(__file__).parents[2] / "fixtures/graphconnector/records.json"
DOWN = "Error contacting the global registry."


def url64(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


class Owner:
    """
    Somebody with a key, who signs as runtimes do: `raw` or DER.
    """

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256K1())
        der = self._key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        public = f"-----BEGIN PUBLIC KEY-----{b64encode(der).decode()}-----END PUBLIC KEY-----"
        salt = b64encode(hashlib.sha256(b"word").digest()).decode()
        self.data: dict[str, Any] = {
            "schemaVersion": 1,
            "salt": salt,
            "userIDs": [{"uid": "user://g.com/ann", "domain": "g.com"}],
            "lastUpdate": "2017-01-01T00:00:00+00:00",
            "timeout": "2030-01-01T00:00:00+00:00",
            "publicKey": public,
            "active": 1,
            "revoked": 0,
            "defaults": {"voice": "a", "chat": "b", "video": "c"},
        }
        self.guid = self.data["guid"] = guid_of(self.data)

    def sign(self, raw: bool = False, alg: str = "ES256", claims: Any = (), **changes: Any) -> str:
        payload = {"data": url64(json.dumps({**self.data, **changes}).encode()), **dict(claims)}
        signed = url64(json.dumps({"alg": alg}).encode()) + "." + url64(json.dumps(payload).encode())
        signature = self._key.sign(signed.encode(), ec.ECDSA(SHA256()))
        if raw:
            signature = b"".join(part.to_bytes(32, "big") for part in decode_dss_signature(signature))
        return f"{signed}.{url64(signature)}"


class RecordTests(SynchronousTestCase):
    """
    Records by themselves.
    """

    def test_guid_is_made_of_key_text_and_salt(self) -> None:
        """
        A GUID is made of the key's text, markers included, and the salt.
        """
        key = "-----BEGIN PUBLIC KEY-----AAAA-----END PUBLIC KEY-----"

        self.assertEqual(
            "khrYeXQi7atU_onDftU6ZozeViU5beCiNQva-aleXmU", guid_of({"publicKey": key, "salt": "salt"})
        )

    def test_guid_of_unconverted_salt(self) -> None:
        """
        The GraphConnector's sjcl derives another one: it appends "1" to the salt, others four bytes.
        """
        key = "-----BEGIN PUBLIC KEY-----AAAA-----END PUBLIC KEY-----"

        guid = guid_of({"publicKey": key, "salt": "salt"}, pbkdf2_of_text)

        self.assertEqual("4LuBMYF76vEIYIae41FeDWkdb543tac34SjzbZ5B0pU", guid)

    def test_guid_in_slices(self) -> None:
        """
        That derivation gives way to the reactor after every 500 of its 10,000 rounds.
        """
        pauses: list[float] = []

        pbkdf2_of_text(b"key", b"salt", pauses.append)

        self.assertEqual([0.001] * 20, pauses)

    def test_sjcl_records_check_with_either_derivation(self) -> None:
        """
        Records made with npm's sjcl, with either derivation, are right; not with the GUID of the other.
        """
        records = json.loads(GRAPH_CONNECTOR.read_text())
        for name in ("converted", "unconverted"):
            record = read_record(records[name]["jwt"])
            check_record(record)

            self.assertEqual(records[name]["guid"], record.data["guid"])
            other = self.assertRaises(
                WrongRecord, check_record, record._replace(data={**record.data, "salt": "other"})
            )
            self.assertEqual("its GUID is not derived from its 'publicKey' and 'salt'", str(other))

    def test_base64url_in_pem(self) -> None:
        """
        The key may be in base64 or base64url, in lines, and without padding; the GUID is made of it as it is.
        """
        owner = Owner()
        begin, end = "-----BEGIN PUBLIC KEY-----", "-----END PUBLIC KEY-----"
        plain = owner.data["publicKey"].removeprefix(begin).removesuffix(end)
        url = plain.replace("+", "-").replace("/", "_")
        for inside in (plain, url, url.rstrip("="), f"{url[:64]}\n{url[64:]}\n"):
            data = {"publicKey": f"{begin}{inside}{end}"}
            guid = guid_of({**owner.data, **data})

            check_record(read_record(owner.sign(guid=guid, **data)))

    def test_algorithm(self) -> None:
        """
        The header says ES256; what the reTHINK server refuses is refused, as ES256K.
        """
        owner = Owner()
        for alg in ("ES256K", "none", "HS256"):
            why = self.assertRaises(WrongRecord, check_record, read_record(owner.sign(alg=alg)))

            self.assertEqual(f"expected 'ES256' in 'alg' of its header, found {alg!r}", str(why))
        _, payload, signature = owner.sign().split(".")
        why = self.assertRaises(WrongRecord, check_record, read_record(f"x.{payload}.{signature}"))
        self.assertEqual("expected 'ES256' in 'alg' of its header, found None", str(why))

    def test_signatures(self) -> None:
        """
        Both encodings of a signature are right.
        """
        owner = Owner()
        for raw in (True, False):
            check_record(read_record(owner.sign(raw)))

    def test_what_is_wrong_with_a_record_is_said(self) -> None:
        """
        What is wrong with a record is said.
        """
        owner, other = Owner(), Owner()
        head, payload, _ = owner.sign().split(".")
        _, _, foreign = other.sign().split(".")
        for jwt, text in (
            (f"{head}.{payload}.{foreign}", "its signature is not made with its 'publicKey'"),
            (f"{head}.{payload}.{'A' * 86}", "its signature is not made with its 'publicKey'"),
            (owner.sign(publicKey=other.data["publicKey"]), "its signature is not made with its 'publicKey'"),
            (owner.sign(salt="other"), "its GUID is not derived from its 'publicKey' and 'salt'"),
            (owner.sign(publicKey="x"), "expected a public key of an elliptic curve in 'publicKey'"),
            (owner.sign(publicKey=5), "expected a public key of an elliptic curve in 'publicKey'"),
            (owner.sign(salt=5), "expected texts in 'publicKey' and 'salt'"),
        ):
            why = self.assertRaises(WrongRecord, check_record, read_record(jwt))

            self.assertEqual(text, str(why))

    def test_no_record(self) -> None:
        """
        What is no record at all is said too.
        """
        for jwt in (
            "",
            "a.b",
            "a.b.c",
            f"a.{url64(b'[]')}.c",
            f"a.{url64(b'{}')}.c",
            "a.ä.c",
            "\ud800.e30.c",
        ):
            self.assertRaises(WrongRecord, read_record, jwt)


class GlobalCase(SynchronousTestCase):
    """
    A node with both registries, a runtime, and somebody with a key.
    """

    def setUp(self) -> None:
        self.node = RegistryNode()
        self.ann = self.node.client(ANN)
        self.owner = Owner()


class GlobalTests(GlobalCase):
    """
    Through the node.
    """

    def ask(self, type: str, to: str = f"{GLOBAL}/", **body: Any) -> dict[str, Any]:
        reply = self.ann.request(type, body, to=to)
        self.assertEqual(to, reply["from"])
        return reply["body"]

    def test_written_and_read(self) -> None:
        """
        In the runtimes' spelling and in the specification's, with a slash and without.
        """
        jwt, guid = self.owner.sign(), self.owner.guid
        for to in (f"{GLOBAL}/", GLOBAL):
            for write, read in (
                ({"guid": guid, "jwt": jwt}, {"guid": guid}),
                ({"resource": f"user-guid://{guid}", "value": jwt}, {"resource": f"user-guid://{guid}"}),
            ):
                for type in ("CREATE", "update"):
                    reply = self.ask(type, to, **write)

                    self.assertEqual((200, 200, "OK"), (reply["Code"], reply["code"], reply["Description"]))
                reply = self.ask("READ", to, **read)
                self.assertEqual(
                    (200, 200, jwt, jwt), tuple(reply[k] for k in ("Code", "code", "Value", "value"))
                )

    def test_graph_connector_record_is_written_and_read(self) -> None:
        """
        A record as the GraphConnector signs it is checked, written and read, with either derivation.
        """
        records = json.loads(GRAPH_CONNECTOR.read_text())
        for name in ("converted", "unconverted"):
            guid, jwt = records[name]["guid"], records[name]["jwt"]

            self.assertEqual(200, self.ask("CREATE", guid=guid, jwt=jwt)["Code"])
            self.assertEqual(jwt, self.ask("READ", guid=guid)["Value"])

    def test_record_that_has_expired_or_is_not_valid_yet(self) -> None:
        """
        A record that has expired, or is not valid yet, is refused in words; the server would fail over it.
        """
        for claims, why in (
            ({"exp": 1}, "it has expired: 'exp' is 1"),
            ({"exp": "1"}, "it has expired: 'exp' is 1"),
            ({"nbf": 10**12}, "it is not valid yet: 'nbf' is 1000000000000"),
            ({"exp": True}, "expected seconds since 1970 in 'exp', found True"),
        ):
            reply = self.ask("CREATE", guid=self.owner.guid, jwt=self.owner.sign(claims=claims))

            self.assertEqual((400, f"the record is refused: {why}"), (reply["code"], reply["description"]))
        self.assertEqual(0, self.node.graph_memory.dialled)
        jwt = self.owner.sign(claims={"exp": 10**12, "nbf": 1})
        self.assertEqual(200, self.ask("CREATE", guid=self.owner.guid, jwt=jwt)["code"])

    def test_node_refuses_guid_that_is_no_single_path_piece(self) -> None:
        """
        A GUID that a path cannot hold as one piece is refused with 400, and never sent.
        """
        for guid in ("a/b", "a\\b", "..", "user-guid://a/b"):
            reply = self.ask("READ", guid=guid)

            self.assertEqual(400, reply["code"])
            self.assertIn("a GUID is base64url, without '/' and", reply["description"])
        self.assertEqual(0, self.node.graph_memory.dialled)

    def test_guid_with_half_a_character_is_nobodys(self) -> None:
        """
        A GUID with half a character is nobody's.
        """
        self.assertEqual(404, self.ask("READ", guid="\ud800")["code"])

    def test_guid_nobody_wrote(self) -> None:
        """
        A GUID nobody wrote: the server's words, its empty Value too, and ours.
        """
        reply = self.ask("READ", guid=self.owner.guid)

        self.assertEqual(
            (404, 404, "", "Not found"), tuple(reply[k] for k in ("Code", "code", "Value", "Description"))
        )
        self.assertEqual(("Not found", "Not found"), (reply["description"], reply["desc"]))

    def test_checked(self) -> None:
        """
        A record of another GUID, or with a wrong signature, never reaches the registry.
        """
        other = Owner()
        head, payload, _ = self.owner.sign().split(".")
        for jwt in (other.sign(), self.owner.sign(salt="x"), f"{head}.{payload}.AAAA", "x", "a.b.c"):
            reply = self.ask("CREATE", guid=self.owner.guid, jwt=jwt)

            self.assertEqual((400, 400), (reply["Code"], reply["code"]))
            self.assertTrue(reply["description"].startswith("the record is refused: "))
        self.assertEqual(0, self.node.graph_memory.dialled)

    def test_unchecked(self) -> None:
        """
        With `verify` off the signature is left to the registry; the GUID must fit all the same.
        """
        self.node = RegistryNode(global_registry={"verify": False})
        self.ann = self.node.client(ANN)
        head, payload, _ = self.owner.sign().split(".")

        reply = self.ask("CREATE", guid=self.owner.guid, jwt=f"{head}.{payload}.AAAA")

        self.assertEqual((400, "Bad Request"), (reply["code"], reply["Description"]))
        self.assertEqual(1, self.node.graph_memory.dialled)
        self.assertEqual(400, self.ask("CREATE", guid="other", jwt=self.owner.sign())["code"])
        self.assertEqual(1, self.node.graph_memory.dialled)

    def test_what_makes_no_sense_is_told_and_never_relayed(self) -> None:
        """
        What makes no sense is told, and never relayed: least of all a delete.
        """
        for type, body, text in (
            ("READ", {}, "name the GUID in 'guid', or in 'resource', not None"),
            ("CREATE", {"guid": "x"}, "give the signed record in 'jwt', or in 'value'"),
            (
                "DELETE",
                {"guid": "x"},
                "the global registry understands read, create and update, not 'DELETE'",
            ),
        ):
            reply = self.ask(type, **body)

            self.assertEqual(
                (400, 400, text, text), tuple(reply[k] for k in ("Code", "code", "Description", "desc"))
            )
        self.assertEqual(0, self.node.graph_memory.dialled)

    def test_registry_that_is_down_is_504_in_both_spellings(self) -> None:
        """
        A registry that is down is 504 in both spellings, without a Value.
        """
        self.node.graph_memory.refuse = ConnectionRefusedError()

        expected = {"Code": 504, "Description": DOWN, "code": 504, "description": DOWN, "desc": DOWN}
        self.assertEqual(expected, self.ask("READ", guid="x"))

    def test_to_read_may_take_6_seconds_to_write_13(self) -> None:
        """
        To read may take 6 seconds, to write 13.
        """
        self.node.graph.fault = Fault("hang")
        for type, seconds in (("READ", 6), ("CREATE", 13)):
            body = {"guid": self.owner.guid, "jwt": self.owner.sign()}
            self.ann.post(f"{GLOBAL}/", type, body=body)
            self.node.pump()
            self.node.wait(seconds - 0.1)
            self.assertEqual([], self.ann.take())
            self.node.wait(0.2)

            self.assertEqual([504], [message["body"]["code"] for message in self.ann.take()])

    def test_answers_of_every_generation_of_servers(self) -> None:
        """
        Answers of every generation of servers, and of what stands around them.
        """
        for reply, code, described in (
            (b'{"message":"OK","responseCode":200,"errorCode":0,"data":"jwt"}', (200, 200, "jwt"), "OK"),
            (b'{"Message":"OK","Code":200,"Value":"jwt"}', (200, 200, "jwt"), "OK"),
            (
                b'{"Code":500,"Description":"Internal Server Error","Value":""}',
                (500, 503, ""),
                "Internal Server Error",
            ),
            (
                b'{"timestamp":1,"status":404,"error":"Not Found","message":"No","path":"/"}',
                (404, 404, None),
                "No",
            ),
        ):
            self.scripted(http(reply, kind="text/plain"))

            told = self.ask("READ", guid="x")

            self.assertEqual(code, (told["Code"], told["code"], told.get("Value")))
            self.assertEqual(described, told["Description"])

    def test_what_is_no_json_object_is_502(self) -> None:
        """
        What is no JSON object is 502.
        """
        for reply in (b"<html>", b"[]", b"5"):
            self.scripted(http(reply))

            told = self.ask("READ", guid="x")
            self.assertEqual((502, 502), (told["Code"], told["code"]))

    def test_refused_without_a_word(self) -> None:
        """
        What the front of a server refuses with nothing but a status is that status, not nonsense.
        """
        for status in ("400 Bad Request", "414 URI Too Long"):
            self.scripted(http(b"", status))

            told = self.ask("READ", guid="x")

            self.assertEqual((int(status[:3]),) * 2, (told["Code"], told["code"]))
        self.scripted(http(b"", "404 Not Found"))
        self.assertEqual(502, self.ask("READ", guid="x")["code"])

    def scripted(self, reply: bytes) -> None:
        def serve() -> Scripted:
            server = Scripted()
            server.reply = reply
            return server

        self.node.graph_memory.serve = serve
        self.node.graph_memory.cut()


class ServerTests(GlobalCase):
    """
    What the embedded global registry refuses by itself.
    """

    def put(self, guid: str, body: bytes) -> tuple[int, str]:
        status, answer, *_ = self.node.global_api.answer("PUT", f"/guid/{guid}", body)
        told = json.loads(answer)
        return status, told.get("Description", told.get("error"))

    def test_first_write(self) -> None:
        """
        A first record must be whole and signed; its GUID is taken as it is.
        """
        good = self.owner.sign()
        head, payload, _ = good.split(".")
        for body, expected in (
            (b"", (400, "Bad Request")),
            (b"x", (500, "Internal Server Error")),
            (b"a.b.c", (500, "Internal Server Error")),
            (f"{head}.{payload}.AAAA".encode(), (400, "Bad Request")),
            (self.owner.sign(defaults={}).encode(), (400, "Bad Request")),
            (self.owner.sign(alg="ES256K").encode(), (400, "Bad Request")),
            (self.owner.sign(claims={"exp": 1}).encode(), (500, "Internal Server Error")),
            (good.encode(), (200, "OK")),
        ):
            self.assertEqual(expected, self.put("any", body))

    def test_second_write(self) -> None:
        """
        A second must be of the same GUID, signed with the first one's key.
        """
        self.put("any", self.owner.sign().encode())
        other = Owner()

        self.assertEqual((400, "Bad Request"), self.put("any", other.sign().encode()))
        self.assertEqual(
            (500, "Internal Server Error"), self.put("any", other.sign(guid=self.owner.guid).encode())
        )
        self.assertEqual((200, "OK"), self.put("any", self.owner.sign(True, lastUpdate="now").encode()))

    def test_raw_signature(self) -> None:
        """
        A first record may be signed raw, as others are with DER.
        """
        self.assertEqual((200, "OK"), self.put("any", self.owner.sign(raw=True).encode()))

    def test_embedded_registry_refuses_guid_with_slash(self) -> None:
        """
        A slash of either kind in a GUID, encoded or not, or what is no encoding: 400 without a word.
        """
        for guid in ("a%2Fb", "a%2fb", "a%5Cb", "a\\b", "a%zz", "a%"):
            for method in ("GET", "PUT"):
                reply = self.node.global_api.answer(method, f"/guid/{guid}", b"x")

                self.assertEqual((400, b""), (reply.status, reply.body))

    def test_expired_since(self) -> None:
        """
        A record that has expired since it was written is found no more: the server fails over it.
        """
        clock = Clock()
        graph = GlobalApi(connect(":memory:"), wall=clock.seconds)
        jwt = self.owner.sign(claims={"exp": 60}).encode()
        self.assertEqual(200, graph.answer("PUT", "/guid/any", jwt).status)
        clock.advance(59)
        self.assertEqual(200, graph.answer("GET", "/guid/any", b"").status)

        clock.advance(1)

        self.assertEqual(500, graph.answer("GET", "/guid/any", b"").status)
        self.assertEqual(404, graph.answer("HEAD", "/guid/other", b"").status)

    def test_other_paths(self) -> None:
        """
        At its root it tells its version; elsewhere its framework says 404.
        """
        answer = self.node.global_api.answer
        self.assertEqual("OK", json.loads(answer("GET", "/", b"").body)["Description"])
        for method, path in (("GET", "/x"), ("DELETE", "/guid/x"), ("GET", "/guid/a/b")):
            self.assertEqual(404, json.loads(answer(method, path, b"").body)["status"])
