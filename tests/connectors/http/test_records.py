"""
The catalogue of records at `/.well-known/records/`.
"""

import json

from twisted.trial.unittest import SynchronousTestCase
from twisted.web.test.requesthelper import DummyRequest

from msgnode.bus.records.known_records import KnownRecords, read_records
from msgnode.connectors.http.records import RecordsResource
from msgnode.records.reader import read_texts
from tests.bus.test_record_check import GET_TEMPERATURE, THERMOMETER


class CatalogueTests(SynchronousTestCase):
    """
    A node whose namespace HOME is public.
    """

    def get(self, path: str, method: bytes = b"GET", public: tuple[str, ...] = ("HOME",)) -> DummyRequest:
        known = KnownRecords()
        known.use(read_records(THERMOMETER, public))
        request = DummyRequest(path.encode().split(b"/"))
        request.method = method
        answer = RecordsResource(known).render(request)
        if isinstance(answer, bytes):
            request.write(answer)
        return request

    def test_the_index_lists_the_public_records(self) -> None:
        """
        Those of SYSTEM are not public by default, and neither is anything else.
        """
        index = json.loads(b"".join(self.get("").written))
        self.assertEqual(["GET_TEMPERATURE", "POSITION"], [each["name"] for each in index["records"]])
        self.assertEqual(GET_TEMPERATURE, index["records"][0]["id"])
        self.assertEqual([], json.loads(b"".join(self.get("", public=()).written))["records"])

    def test_the_definitions_can_be_read_again(self) -> None:
        data = b"".join(self.get("records.json").written)
        self.assertEqual(2, len(read_texts([("records.json", data)])))

    def test_people_read_a_page(self) -> None:
        request = self.get("docs.html")
        self.assertEqual(["text/html; charset=utf-8"], request.responseHeaders.getRawHeaders("content-type"))
        self.assertIn(b"GET_TEMPERATURE", b"".join(request.written))

    def test_anything_else_is_answered_404_and_405(self) -> None:
        self.assertEqual(404, self.get("secret.json").responseCode)
        self.assertEqual(405, self.get("", b"POST").responseCode)
