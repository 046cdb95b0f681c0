"""
What the node reads in an address.
"""

from twisted.trial.unittest import SynchronousTestCase

from msgnode.protocol.address import MAX_ADDRESS_CHARS, Domain, is_multicast, is_scheme, split_token

TOKEN = "mns_" + "aA0_-" * 8 + "xyz"
UUID4 = "0b7f6c52-9d1e-4f44-8c51-2b8f3e3f9a10"


class SplitTokenTests(SynchronousTestCase):
    """
    The runtimeURL and the secret in the `from` of a handshake.
    """

    def test_secrets(self) -> None:
        """
        A last segment with the shape of our tokens, or of the UUID4 of today's nodes, is the secret.
        """
        for secret in (TOKEN, TOKEN.replace("mns_", "mnd_"), UUID4, UUID4.upper()):
            for runtime in (
                "runtime://example.org/1",
                "runtime://example.org/a/b",
                "runtime:/alice1",
                "name",
            ):
                self.assertEqual((runtime, secret), split_token(f"{runtime}/{secret}"))

    def test_no_secret(self) -> None:
        """
        Any other last segment belongs to the runtimeURL.
        """
        uuid1 = "0b7f6c52-9d1e-1f44-8c51-2b8f3e3f9a10"
        names = (TOKEN[:-1], TOKEN + "x", "xns_" + TOKEN[4:], uuid1, UUID4[:-1], "mns_", "")
        for name in names:
            address = f"runtime://example.org/1/{name}"

            self.assertEqual((address, ""), split_token(address))

    def test_uuid_or_token_that_is_the_whole_path_stays(self) -> None:
        """
        A UUID4 or a token that is the whole path is not cut off: nothing would be left of the name.
        """
        for address in (
            f"runtime://example.org/{UUID4}",
            f"runtime://example.org/{TOKEN}",
            f"runtime://example.org//{UUID4}",
            f"runtime:/{UUID4}",
            UUID4,
            f"/{UUID4}",
            "",
        ):
            self.assertEqual((address, ""), split_token(address))


class DomainTests(SynchronousTestCase):
    """
    Which addresses are the node's.
    """

    domain = Domain("example.org")

    def test_addresses_that_the_node_answers_at(self) -> None:
        """
        The node answers at `mn:`, `global:` and every `domain://` address of its domain.
        """
        for address in (
            "mn:/session",
            "mn:/x",
            "global://registry",
            "global://registry/",
            "domain://example.org",
            "domain://example.org/x",
            "domain://msg-node.example.org/sm",
            "domain://registry.example.org",
            "domain://idm.example.org/x/y",
        ):
            self.assertTrue(self.domain.owns(address), address)

    def test_addresses_of_other_domains_and_names_that_only_look(self) -> None:
        """
        Addresses of other domains, and names that only look similar, are not the node's.
        """
        for address in (
            "domain://msg-node.example.com/sm",
            "domain://notexample.org/x",
            "domain://example.org.evil.net/x",
            "hyperty://example.org/1",
            "mn",
            "mns:/x",
            "globals://x",
            "xdomain://example.org",
            "",
        ):
            self.assertFalse(self.domain.owns(address), address)

    def test_senders_may_not_use_the_nodes_names(self) -> None:
        """
        A sender may not call itself by the names that the node answers under.
        """
        for from_ in (
            "mn:/session",
            "mn:",
            "global://registry",
            "domain://msg-node.example.org",
            "domain://msg-node.example.org/sm",
            "domain://idm.example.org",
            "domain://qos-broker.example.org/x",
            "Mn:/session",
            "GLOBAL://registry",
            "Domain://Msg-Node.Example.org/sm",
            "domain://registry.example.org",
            "domain://registry.example.org/x",
            "DOMAIN://Registry.Example.ORG/",
        ):
            self.assertTrue(self.domain.claimed_by(from_), from_)

    def test_not_claimed(self) -> None:
        """
        What begins alike, or belongs to another domain, is no claim.
        """
        for from_ in (
            "domain://msg-node.example.organic",
            "domain://msg-node.example.com/sm",
            "domain://example.org/x",
            "domain://registry.example.com",
            "hyperty://msg-node.example.org",
            "mnx:/session",
            "",
        ):
            self.assertFalse(self.domain.claimed_by(from_), from_)

    def test_can_open(self) -> None:
        """
        Any name will do for a runtime, of any domain, also one that is no URL; but not a node's.
        """
        for name in (
            "runtime://example.org/1",
            "hyperty-runtime://other.net/a/b",
            "runtime://example.org/1/",
            "runtime:/alice1",
            "hyper-1",
            "x" * MAX_ADDRESS_CHARS,
        ):
            self.assertTrue(self.domain.can_open(name), name)

    def test_cannot_open(self) -> None:
        """
        A name above which everything of a scheme or a host would lie, or that is the node's, is refused.
        """
        for name in (
            "",
            "runtime://example.org",
            "runtime://example.org/",
            "runtime://example.org//",
            "runtime://",
            "runtime:",
            "runtime:/",
            "domain:",
            "domain:/",
            "hyperty://",
            "mn:/x",
            "global://x/y",
            "domain://example.org/x",
            "domain://msg-node.example.org/sm",
            "domain://msg-node.other.net/x",
            "domain://other.net/x",
            "mn://other.net/mn1",
            "global:other/x/y",
            "MN:/session",
            "Global://x/y",
            "DOMAIN://other.net/x",
            "x" * (MAX_ADDRESS_CHARS + 1),
        ):
            self.assertFalse(self.domain.can_open(name), name)


class ShapeTests(SynchronousTestCase):
    """
    Schemes, and addresses that are published to.
    """

    def test_scheme_is_lower_case_as_in_rfc_3986(self) -> None:
        """
        A scheme is as RFC 3986 has it, in lower case.
        """
        for text in ("comm", "sip", "hyperty-runtime", "a+b.c-1"):
            self.assertTrue(is_scheme(text), text)
        for text in ("", "1a", "-a", "Comm", "a b", "comm:", "comm://x", "ä", "a\n"):
            self.assertFalse(is_scheme(text), text)

    def test_nobody_waits_for_answers_from_channels(self) -> None:
        """
        Nobody waits for an answer to what is published at an object's channels.
        """
        for address in ("comm://d/1/changes", "x/children/", "x/children/a", "x/registration", "x/status"):
            self.assertTrue(is_multicast(address), address)
        for address in ("comm://d/1", "comm://d/1/subscription", "x/changes/y", "changes", "x/children"):
            self.assertFalse(is_multicast(address), address)
