"""Who is calling: one key for a caller, in whatever spelling, and never none."""

import pytest

from noria.identity import NO_ADDRESS, client_address


@pytest.mark.parametrize(
    "client",
    [
        None,
        (),
        [],
        (None, None),
        ("", 0),
        ("/run/app.sock", None),
        ("testclient", 50000),
        ("unknown", 0),
        ("0.0.0.0", 0),  # noqa: S104
        ("::", 0),
        ("01.2.3.4", 0),
        ("1.2.3.4:5678", 0),
        ("[2001:db8::1]", 0),
        ("1_0.2.3.4", 0),
        ("１.2.3.4", 0),  # noqa: RUF001
        (b"1.2.3.4", 0),
    ],
)
def test_callers_without_an_address_share_one_key(client):
    assert client_address(client) == NO_ADDRESS == "anonymous"


@pytest.mark.parametrize(
    "host",
    [
        "192.0.2.128",
        "::ffff:192.0.2.128",
        "::ffff:c000:280",
        "0:0:0:0:0:FFFF:C000:0280",
        "64:ff9b::192.0.2.128",
    ],
)
def test_an_ipv4_address_is_one_key_however_it_is_embedded(host):
    assert client_address((host, 4711)) == "192.0.2.128"


def test_different_mapped_addresses_are_different_keys():
    keys = {client_address((f"::ffff:{host}", 1)) for host in ("1.2.3.4", "9.9.9.9")}
    assert keys == {"1.2.3.4", "9.9.9.9"}


@pytest.mark.parametrize("host", ["::1.2.3.4", "2001:db8::1.2.3.4"])
def test_an_ipv6_address_with_dots_in_it_stays_ipv6(host):
    assert client_address((host, 1)).endswith("/64")


def test_an_ipv6_caller_is_its_64_bit_prefix():
    hosts = ("2001:db8::1", "2001:db8::5", "2001:DB8:0:0:A:B:C:D", "2001:0db8:0000::ffff")
    assert {client_address((host, 1)) for host in hosts} == {"2001:db8::/64"}
    assert client_address(("2001:db8:0:1::1", 1)) == "2001:db8:0:1::/64"


def test_the_zone_and_the_port_are_no_part_of_the_key():
    assert client_address(("fe80::1%eth0", 1)) == client_address(["fe80::2", 2]) == "fe80::/64"


def test_the_last_bits_of_the_prefix_count_and_the_first_after_it_do_not():
    assert client_address(("2001:db8:0:1:ffff::", 1)) == client_address(("2001:db8:0:1::", 1))
    assert client_address(("2001:db8:0:1::", 1)) != client_address(("2001:db8::", 1))
