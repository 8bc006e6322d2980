"""Expressions that select devices: what Kubernetes' own tests of them expect, and that each ends within its steps."""

import random

import pytest

from penstock.engines.kubernetes.cel.evaluating import Domains, Evaluation, check
from penstock.engines.kubernetes.cel.functions import Failed
from penstock.engines.kubernetes.cel.syntax import BadExpression, parsed
from penstock.engines.kubernetes.cel.values import quantity, version

A, C = 'device.attributes["dra.example.com"]', 'device.capacity["dra.example.com"]'
ATTRIBUTES = {
    "yes": True, "no": False, "int": 3, "text": "some_fish_value", "version": version("1.2.0"), "list": ["a", "b"],
    "ints": [1, 2], "versions": [version("1.0.0"), version("2.0.0")],
}  # fmt: skip
DEVICE = {
    "driver": "dra.example.com",
    "attributes": Domains({"dra.example.com": ATTRIBUTES}),
    "capacity": Domains({"dra.example.com": {"memory": quantity("1Mi")}}),
    "allowMultipleAllocations": False,
}


def evaluated(expression):
    tree = parsed(expression)
    check(tree)
    return Evaluation().value(tree, {"device": DEVICE})


@pytest.mark.parametrize(
    "expression",
    [
        "true", "!false", f"{A}.yes", f'{A}["yes"]', f"!{A}.no", 'device.driver == "dra.example.com"',
        "device.allowMultipleAllocations == false",
        '"dra.example.com" in device.attributes', '!("other" in device.attributes)', f'"memory" in {C}',
        f'!("name" in {C}) || {C}.name.isGreaterThan(quantity("1Ki"))',
        f"cel.bind(dra, {A}, dra.yes)", f"has({A}.int) && !has({A}.none)",
            'has(device.attributes["other"].none) == false',
        f"{A}.int > 2 && {A}.int <= 3 && {A}.int != 4", f"{A}.int * 2 + 1 == 7", "-7 / 2 == -3 && -7 % 2 == -1",
        "0x10 == 16 && 1.5e1 == 15.0 && 2u == 2", "1 == 1.0 && !(1 == true) && !('a' == 1)",
        f'{A}.text == "some_fish_value"', f'{A}.text.contains("fish")', f'{A}.text.startsWith("some")',
        f'{A}.text.endsWith("value")', f'{A}.text.split("_").size() == 3', f'{A}.text.matches("f.sh")',
        f'{A}.text.find("f.sh") == "fish"', "'ABC'.lowerAscii() == 'abc' && 'a'.upperAscii() == 'A'",
        "'abc'.substring(1) == 'bc' && 'abc'.substring(0, 1) == 'a' && 'abc'.charAt(2) == 'c'",
        "'a,b'.replace(',', ';') == 'a;b' && ' a '.trim() == 'a' && ['a', 'b'].join('-') == 'a-b'",
        r"'\x41\u0042\n' == 'AB\n' && r'\n' == '\\n'", "size('abc') == 3 && [1, 2].size() == 2 && {'a': 1}['a'] == 1",
        f'{A}.version.isGreaterThan(semver("1.1.9"))', f'{A}.version.isLessThan(semver("1.10.0"))',
        f'{A}.version.compareTo(semver("1.2.0")) == 0 && {A}.version.minor() == 2',
        'semver("1.0.0-rc.1").isLessThan(semver("1.0.0")) && semver("1.0.0-rc.2").isGreaterThan(semver("1.0.0-rc.1"))',
        'semver("v1.0", true).compareTo(semver("1.0.0")) == 0 && isSemver("1.0.0") && !isSemver("v1.0.0")',
        f'{C}.memory.isGreaterThan(quantity("1Ki"))', f'{C}.memory == quantity("1024Ki")',
        f'{C}.memory.compareTo(quantity("1Mi")) >= 0', f'{C}.memory.asInteger() == 1048576',
        'quantity("1500m").isInteger() == false && quantity("1").add(quantity("2")).sub(1).asInteger() == 2',
        'isQuantity("1Gi") && !isQuantity("1Gx") && quantity("-1").sign() == -1',
        'device.attributes.exists_one(x, x == "dra.example.com")', f'{A}.exists(x, x == "int")',
        f'{A}.list.includes("a") && {A}.text.includes("some_fish_value") && !{A}.ints.includes(3)',
        f'{A}.versions.includes(semver("1.0.0"))', f"{A}.ints.all(x, x > 0) && {A}.ints.exists(x, x > 1)",
        f"{A}.ints.map(x, x * 2)[1] == 4 && {A}.ints.filter(x, x > 1).size() == 1 && {A}.ints.sum() == 3",
        f"2 in {A}.ints && [[1], [2]] == [[1], [2]]", f"{A}.int > 2 ? true : {A}.none",
        f'{A}.?none.orValue("x") == "x" && !{A}.?none.hasValue() && {A}[?"int"].value() == 3',
        "'%s has %d, %x, %.2f, %s%%'.format(['a', 12, 255, 1.5, true]) == 'a has 12, ff, 1.50, true%'",
        f"false && {A}.none || true", f"{A}.none || true", f"!({A}.none && false)",
    ],
)  # fmt: skip
def test_it_holds(expression):
    assert evaluated(expression) is True


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ('device.attributes["other"].none.isGreaterThan(quantity("0"))', "no such key: none"),
        (f"{A}.none", "no such key: none"), (f"{A}.int.exists(x, x > 0)", "got 'int', expected iterable type"),
        (f'{A}.version.exists(x, true)', "got 'semver', expected iterable type"), (f"{A}.int && true",
            "int, expected a bool"),
        ("'a' < 1", "no '<' of string and int"), ("1 + 'a'", "string, expected numbers for '+'"), ("1 / 0",
            "division by zero"),
        ("9223372036854775807 * 4", "integer overflow"), ("semver('1.0')", "'1.0' is no version such as 1.2.3"),
        ("quantity('x')", "'x' is no quantity"), ("'a'.matches('(')", "'(' is no regular expression"),
        ("nothing == 1", "undeclared reference to 'nothing'"), ("[1][2]", "no such key: 2"),
        (f"double(0x{'f' * 300}) > 1.0", "'double': int too large to convert to float"),
        ("'%d'.format(['a'])", "string, expected an int"), ("'%y'.format([1])", "'format': unknown verb 'y'"),
        ("'%s%s'.format([1])", "'format': more verbs than values"),
        ("'%s'.format([1, 2])", "'format': more values than verbs"),
        ("'a'.contains(1)", "int, expected a string"), (f"{C}.memory < {C}.memory", "no '<' of quantity and quantity"),
    ],
)  # fmt: skip
def test_it_fails(expression, error):
    with pytest.raises(Failed) as caught:
        evaluated(expression)
    assert str(caught.value) == error


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("?!", "Syntax error at character 1: '?', expected a name"), ("", "Syntax error: 'the end', expected a name"),
        ("a ==", "Syntax error: 'the end', expected a name"), ("'a", "Syntax error at character 1: \"'a\""),
        ("a b", "Syntax error at character 3: 'b', expected the end"), ("none(1)", "undeclared reference to 'none'"),
        ("a.none(1)", "undeclared reference to 'none'"), ("[x.none(1)]", "undeclared reference to 'none'"),
        ("(" * 100 + "1" + ")" * 100, "nested more than 40 deep"), ("!" * 100 + "true", "nested more than 40 deep"),
        ("a" + ".b" * 100, "more than 40 members of members"),
        ("(" * 30 + "device" + (".a" * 39 + ")") * 30, "more than 120 parts within one another"),
        (("(" + "!" * 40) * 30 + "true" + ")" * 30, "more than 120 parts within one another"),
        (r"'\ud800'.matches('a')", r"\ud800 is no character"),
        ("1" + " " * 10_240, "an expression of 10,241 characters, at most 10,240 are allowed"),
    ],
)  # fmt: skip
def test_it_is_no_expression(expression, error):
    with pytest.raises(BadExpression) as caught:
        evaluated(expression)
    assert str(caught.value) == error


TEN = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"
DOUBLED = "".join(f"cel.bind(x{i + 1}, x{i} + x{i}, " for i in range(30))


@pytest.mark.parametrize(
    "expression",
    [
        "".join(f"{TEN}.all(x{i}, " for i in range(7)) + "true" + ")" * 7,
        f"cel.bind(x0, 'abcdefgh', {DOUBLED}x30 == ''{')' * 31}",
        f"cel.bind(x0, {TEN}, {DOUBLED}x30 == []{')' * 31}",
        "cel.bind(a, 'a', " * 1 + "a.replace('', '" + "b" * 9_000 + "').replace('b', '" + "c" * 1_000 + "') == '')",
        "[1]" + ".map(a, [a, a])" * 30 + ".all(a, a == a)",
        "[1]" + ".map(a, [a, a])" * 30 + ".all(a, '%s'.format([a]) == '')",
        "[1]" + ".map(a, [a, a])" * 30 + ".all(a, a in [a])",
        "[1]" + ".map(a, [a, a])" * 30 + ".all(a, a.includes(a))",
        "true && " * 1_200 + f"{TEN}.all(x, {TEN}.all(y, {TEN}.all(z, {TEN}.all(w, w > 0))))",
    ],
)  # fmt: skip
def test_every_evaluation_ends_within_its_steps(expression):
    with pytest.raises(Failed, match="actual cost limit exceeded: more than 4,000 steps"):
        evaluated(expression)


def test_the_worst_regular_expression_takes_no_time_to_speak_of():
    assert evaluated(f"'{'a' * 64}'.matches('^(a+)+$b')") is False


@pytest.mark.parametrize("seed", range(20))
def test_no_text_at_all_breaks_it(seed):
    draw, words = random.Random(seed), ["device", ".", "[", "]", "(", ")", '"a"', "1", "&&", "!", "+", "?", ":", "in",
                                        "all", "has", "x", ",", "{", "}", "attributes", "size", "-", "==",
                                            "matches"]  # fmt: skip
    for _ in range(200):
        text = " ".join(draw.choice(words) for _ in range(draw.randint(1, 12)))
        try:
            evaluated(text)
        except (BadExpression, Failed):
            continue
