"""Both languages say the same things."""

import re

import pytest

from penstock.report.invoice.words import LANGUAGES, LOCALES, TAGS, WORDS


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_exactly_the_same_words(language):
    assert list(WORDS[language]) == list(WORDS["en"])
    assert all(text.strip() for text in WORDS[language].values())
    assert LOCALES[language]
    assert TAGS[language]


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_word_is_about_the_same_values_in_each_language(language):
    for key, text in WORDS[language].items():
        assert sorted(re.findall(r"\{.*?\}", text)) == sorted(re.findall(r"\{.*?\}", WORDS["en"][key])), key


def test_english_words_are_not_left_in_chinese():
    alike = {key for key, text in WORDS["zh"].items() if text == WORDS["en"][key]}
    assert alike == {"cpu"}
