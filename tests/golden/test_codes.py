"""Known answers: mesh codes of the standard, AES-256 in counter mode, Morton codes."""

import copy
import pickle

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

from kasuri import meshcode
from kasuri.errors import DomainError
from kasuri.noise.rng import Stream, Streams, seeded


def test_published_codes():
    """Tokyo station's cells, and the formula of the data description (pp uu q v r w m)."""
    row, col = meshcode.decode([533946113], "500m")
    assert (row[0], col[0]) == (160 * 53 + 20 * 4 + 2 * 1 + 1, 160 * 39 + 20 * 6 + 2 * 1 + 0)
    row, col = meshcode.decode([53394611], "1km")
    assert (row[0], col[0]) == (80 * 53 + 10 * 4 + 1, 80 * 39 + 10 * 6 + 1)
    assert meshcode.degrees("500m") == pytest.approx((1 / 240, 1 / 160))
    assert meshcode.encode([53], [39], "80km").tolist() == [5339]


@given(level=st.sampled_from(sorted(meshcode.LEVELS)), seed=st.integers(0, 10**6))
def test_round_trip(level, seed):
    side = 100 * meshcode.LEVELS[level].per_first
    rng = np.random.default_rng(seed)
    row, col = rng.integers(side // 10, side, 50), rng.integers(0, side, 50)
    codes = meshcode.encode(row, col, level)
    assert all(len(str(code)) == meshcode.LEVELS[level].digits for code in codes.tolist())
    back = meshcode.decode(codes, level)
    assert np.array_equal(back[0], row) and np.array_equal(back[1], col)


@pytest.mark.parametrize(("code", "level"), [(53394611, "500m"), (533946115, "500m"), (533946110, "500m"),
                                             (533996113, "500m"), (-5, "80km"), (533986, "10km")])  # fmt: skip
def test_wrong_codes_are_refused_by_position(code, level):
    with pytest.raises(DomainError, match="positions 1"):
        meshcode.decode([meshcode.encode([9000], [6000], "500m")[0] if level == "500m" else
                         (533945 if level == "10km" else 5339), code], level)  # fmt: skip


@given(row=st.integers(0, 2**31 - 1), col=st.integers(0, 2**31 - 1))
def test_morton(row, col):
    key = sum(((row >> b & 1) << 2 * b + 1) | ((col >> b & 1) << 2 * b) for b in range(31))
    assert meshcode.morton([row], [col]).tolist() == [key]


def test_keystream_is_aes_256_ctr():
    """NIST SP 800-38A F.5.5 key; the counter starts at 0, so block i is AES(key, i)."""
    key = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    words = np.empty(8, dtype=np.uint64)
    Stream(key, lambda: bytes(32)).fill(words)
    ecb = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    assert words.tobytes() == b"".join(ecb.update(i.to_bytes(16, "big")) for i in range(4))
    # the vector itself: AES-256-CTR of the standard's first counter block and plaintext
    ctr = Cipher(algorithms.AES(key), modes.CTR(bytes.fromhex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"))).encryptor()
    assert ctr.update(bytes.fromhex("6bc1bee22e409f96e93d7e117393172a")).hex() == "601ec313775789a5b7a7f504bbf3d228"


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, pickle.dumps])
@pytest.mark.parametrize("read", [0, 4])
def test_a_keystream_is_not_copied(way, read):
    """Read or not: a copy would give the same bits once more."""
    stream = Streams(bytes(32), "test").open("noise")
    stream.fill(np.empty(read, dtype=np.uint64))
    with pytest.raises(TypeError):
        way(stream)


def test_keystream_is_continuous_over_fills():
    one, two = (Stream(bytes(32), lambda: bytes(32)) for _ in range(2))
    whole = np.empty(100_000, dtype=np.uint32)
    one.fill(whole)
    parts = [np.empty(n, dtype=np.uint32) for n in (4, 60_000, 39_996)]
    for part in parts:
        two.fill(part)
    assert np.array_equal(whole, np.concatenate(parts))
    assert one.drawn == two.drawn == 100_000


def test_seeded_keys_are_fixed_and_secure_keys_are_not():
    from kasuri.noise.rng import secure

    assert seeded(1).release_key() == seeded(1).release_key() != seeded(2).release_key()
    assert secure().release_key() != secure().release_key()
