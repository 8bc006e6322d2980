"""What a name says of a device."""

from penstock.formats.devices import KnownDevice, known_of, plain_model


def test_a_word_of_the_name_tells_the_model_and_a_size_in_it_comes_first():
    assert known_of("nvidia_a100-sxm4-80gb") == KnownDevice("nvidia", 80, (8, 0))
    assert known_of("MI250X") == KnownDevice("amd", 128)
    assert known_of("gtx") is None
    assert plain_model("a\n100") == "a100"
