"""
The lock on an object store, on one in memory, and on moto's server where moto is installed.
"""

import pytest

from msgnode.mining.pipeline.object_lock import STALE_SECONDS, Held, ObjectLock
from msgnode.mining.reading.log_files import LogFile, Unreadable, unsplit

OUT = "s3a://lake/mined"


class Memory:
    """
    An object in memory, with a clock that the test sets.
    """

    def __init__(self):
        self.held = None
        self.seconds = 1000.0
        self.fails = False

    def read(self):
        return self.held

    def create(self, text):
        return "" if self.held else self._write(text)

    def replace(self, text, tag):
        return self._write(text) if self.held and self.held.tag == tag else ""

    def now(self):
        return self.seconds

    def _write(self, text):
        if self.fails:
            raise Unreadable("no connection")
        self.held = Held(text, f"tag of {text}", self.seconds)
        return self.held.tag


class Bucket:
    """
    An object behind boto3, with an offset to the clock of the store.
    """

    def __init__(self, client):
        self.client = client
        self.seconds = 0.0

    def read(self):
        try:
            found = self.client.get_object(Bucket="lake", Key="mined/.lock")
        except self.client.exceptions.NoSuchKey:
            return None
        text = found["Body"].read().decode()
        return Held(text, found["ETag"], found["LastModified"].timestamp())

    def create(self, text):
        return self._write(text, IfNoneMatch="*")

    def replace(self, text, tag):
        return self._write(text, IfMatch=tag)

    def now(self):
        self.client.put_object(Bucket="lake", Key="probe", Body=b"")
        written = self.client.head_object(Bucket="lake", Key="probe")["LastModified"]
        return written.timestamp() + self.seconds

    def _write(self, text, **condition):
        try:
            return self.client.put_object(Bucket="lake", Key="mined/.lock", Body=text.encode(), **condition)[
                "ETag"
            ]
        except self.client.exceptions.ClientError as why:
            assert why.response["Error"]["Code"] in ("PreconditionFailed", "NoSuchKey")
            return ""


@pytest.fixture(scope="module")
def client():
    """
    A client of moto's server in this process.
    """
    server = pytest.importorskip("moto.server")
    boto3 = pytest.importorskip("boto3")
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
    yield boto3.client("s3", endpoint_url=f"http://{host}:{port}", **keys)
    running.stop()


@pytest.fixture(params=["memory", "moto"])
def store(request):
    if request.param == "memory":
        return Memory()
    client = request.getfixturevalue("client")
    client.create_bucket(Bucket="lake")
    client.delete_object(Bucket="lake", Key="mined/.lock")
    return Bucket(client)


def test_one_of_two_runs_gets_the_lock(store):
    """
    While one run holds the lock, another is refused, and is given the holder's name; afterwards it gets it.
    """
    said = r"another run \(.+ process \d+ .+\) uses s3a://lake/mined"
    with ObjectLock(store, OUT).held(), pytest.raises(Unreadable, match=said):
        ObjectLock(store, OUT).acquire()
    with ObjectLock(store, OUT).held() as second:
        second.check()
    assert "" == store.read().text


def test_two_runs_that_read_the_same_state(store):
    """
    Of two runs that found no lock, or an old one, only the first write is done.
    """
    first = store.create("a")
    assert first and not store.create("b")
    assert store.replace("b", first) and not store.replace("c", first)


def test_lock_of_a_killed_run_is_taken_over(store):
    """
    A lock that is not renewed is taken over after a time; the run that had it notices at its next renewal.
    """
    lost = []
    slow, other = ObjectLock(store, OUT, lambda: lost.append(True)), ObjectLock(store, OUT)
    slow.acquire()
    slow.renew()
    slow.check()

    store.seconds += STALE_SECONDS
    other.acquire()
    slow.renew()

    assert [True] == lost
    with pytest.raises(Unreadable, match="another run has taken over"):
        slow.check()
    slow.release()
    other.renew()
    other.check()


def test_store_that_is_not_reached_for_a_moment():
    """
    A renewal that fails is repeated; if it fails until the lock is stale, the lock is lost.
    """
    store = Memory()
    patient, hasty = ObjectLock(store, OUT), ObjectLock(store, OUT, stale_seconds=0)
    patient.acquire()
    store.fails = True
    patient.renew()
    patient.check()

    store.held, store.fails = None, False
    hasty.acquire()
    store.fails = True
    hasty.renew()

    with pytest.raises(Unreadable, match="could not renew its lock"):
        hasty.check()


def test_failure_of_a_run_that_lost_its_lock_is_explained():
    """
    When another run took over, that is the failure, not the jobs that were stopped; its lock stays.
    """
    store = Memory()
    with pytest.raises(Unreadable, match="another run has taken over"), ObjectLock(store, OUT).held() as lock:
        store.held = Held("other", "tag of other", store.seconds)
        lock.renew()
        raise ValueError("job was cancelled")
    assert "other" == store.held.text


def test_compressed_file_that_is_large_is_named():
    """
    A file that one task must read is named with its size, once for all.
    """
    large = [LogFile(f"traffic-mn1-20260731T0{at}.jsonl.gz", "", (200 + at) * 2**20) for at in range(3)]
    small = LogFile("traffic-mn1-20260731T09.jsonl.gz", "", 2**20)
    plain = LogFile("traffic-mn1-20260731T10.jsonl", "", 2**40)

    assert "" == unsplit([small, plain])
    assert (
        "traffic-mn1-20260731T02.jsonl.gz (202 MiB) is read by one task, for gzip cannot be split, "
        "and so are 2 more" == unsplit([*large, small, plain])
    )
