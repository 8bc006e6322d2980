"""Times, sizes and counts of Slurm come out exactly, or not at all."""

import pytest

from penstock.formats.slurm import Gres, gres_count, limit_ms, read_gres, size_bytes, time_ms, tres_items

GIB = 2**30


@pytest.mark.parametrize(
    ("text", "value_ms"),
    [
        ("1-02:03:04", 93_784_000),
        ("02:03:04", 7_384_000),
        ("03:04.500", 184_500),
        ("1-02", 93_600_000),
        ("90", 90_000),
        ("00:00:00", 0),
    ],
)
def test_lengths_of_slurm(text, value_ms):
    assert time_ms(text, bare_ms=1000) == value_ms


@pytest.mark.parametrize("text", ["", "1:2:3:4", "-5", "1-", "1--2", "a:b"])
def test_what_is_no_length_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011 (the text of the error is the value itself)
        time_ms(text, bare_ms=1000)


def test_a_plain_limit_is_minutes_and_words_are_no_limit():
    assert limit_ms("60") == 3_600_000
    assert limit_ms("1-00:00:00") == 86_400_000
    assert [limit_ms(word) for word in ("UNLIMITED", "infinite", "-1")] == [0, 0, 0]


@pytest.mark.parametrize(
    ("text", "value"), [("4G", 4 * GIB), ("62.50G", 125 * GIB // 2), ("4000M", 4000 * 2**20), ("512", 512 * 2**20)]
)
def test_sizes_of_slurm(text, value):
    assert size_bytes(text) == value


def test_gres_counts_memory_in_mebibytes():
    assert size_bytes("1000") == 1000 * 2**20
    assert size_bytes("1000G") == 1000 * 2**30
    assert size_bytes("5gb") == 5 * 2**30
    assert gres_count("2K") == 2048
    for wrong in ("", "G", "-1", "1X", "1.G"):
        with pytest.raises(ValueError, match=r"^"):
            size_bytes(wrong)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5", 300),
        ("5:30", 330),
        ("1:02:03", 3723),
        ("7-0", 604_800),
        ("1-12:30", 131_400),
        ("1-00:00:10", 86_410),
    ],
)
def test_slurm_times_have_six_forms(text, seconds):
    assert limit_ms(text) == seconds * 1000


def test_nonsense_is_no_limit():
    for wrong in ("", "1:2:3:4", "1d", "soon", "5.5"):
        with pytest.raises(ValueError, match=r"^"):
            limit_ms(wrong)


def test_generic_resources_have_a_type_a_count_and_sockets():
    assert read_gres("gpu:a100:8(S:0-1)") == Gres("gpu", "a100", 8, (0, 1))
    assert read_gres("GPU:2K") == Gres("gpu", "", 2048, None)
    assert read_gres("gpu:no_consume:a:b:1") == Gres("gpu", "a:b", 1, None)
    assert read_gres("gpu") == Gres("gpu", "", 1, None)
    assert read_gres("gpu(") is None


def test_trackable_resources_are_names_and_amounts():
    assert list(tres_items("cpu=4, gres/gpu:A=2,,")) == [("cpu", "4"), ("gres/gpu:A", "2")]
    with pytest.raises(ValueError, match=r"^cpu$"):
        list(tres_items("mem=1G,cpu"))
