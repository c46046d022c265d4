"""Code is divided into its classes and functions, by its grammar."""

import sys

import pytest

from memotree.forest.documents import UnreadableDocumentError, read_document
from memotree.forest.documents import code as code_module


def drawn(source: str, name: str) -> list[str]:
    """The sections as indented lines, each with its title and its own text."""
    document = read_document(source, name=name)
    assert document.text == source
    return [
        f"{'  ' * (part.level - 1)}{part.title}: {document.text[part.start : document.own_end(index)]!r}"
        for index, part in enumerate(document.outline)
    ]


PYTHON = '''"""Stores things."""

import os

# The one store.
@final
class Store:
    """Keeps them."""

    size = 1

    # Reads one.
    def read(self):
        def inner():
            pass
        return inner

    LATER = 2

    async def write(self): ...

    def drop(self):
        pass


LIMIT = 3
NAMES = [
    "a",
]


def main() -> None:
    Store()


if __name__ == "__main__":
    main()
'''


@pytest.mark.requirement("USE-9")
@pytest.mark.requirement("FOREST-3")
def test_python_is_divided_into_classes_methods_and_functions() -> None:
    assert drawn(PYTHON, "a.py") == [
        'class Store: \'# The one store.\\n@final\\nclass Store:\\n    """Keeps them."""\\n\\n    size = 1\\n\\n\'',
        (
            "  Store.read(): '    # Reads one.\\n    def read(self):\\n        def inner():\\n            pass\\n"
            "        return inner\\n\\n'"
        ),
        "  LATER, write: '    LATER = 2\\n\\n    async def write(self): ...\\n\\n'",
        "  Store.drop(): '    def drop(self):\\n        pass\\n\\n\\n'",
        "LIMIT, NAMES: 'LIMIT = 3\\nNAMES = [\\n    \"a\",\\n]\\n\\n\\n'",
        "main(): 'def main() -> None:\\n    Store()\\n\\n\\n'",
        'if __name__ == "__main__":: \'if __name__ == "__main__":\\n    main()\\n\'',
    ]


@pytest.mark.requirement("USE-9")
@pytest.mark.parametrize(
    ("name", "source", "expected"),
    [
        (
            "a.js",
            (
                "import x\n/** Doc. */\nexport default class A {\n x = 1;\n get() {\n }\n static b = () => {\n }\n}\n"
                "export const f = (a) => {\n};\nmodule.exports.g = function() {\n}\nfunction* k() {\n}\n"
            ),
            ["class A", "A.get()", "A.b()", "f()", "module.exports.g()", "k()"],
        ),
        (
            "a.ts",
            (
                "export interface I {\n a: string }\nnamespace N {\n export class C<T> {\n m(): void {\n} } }\n"
                "type X = string;\nabstract class Q {\n abstract z(): void\n}\n"
            ),
            ["interface I", "namespace N", "class C", "C.m()", "X", "class Q"],
        ),
        ("a.tsx", "export function App() {\n return <div>a</div>\n}\n", ["App()"]),
        (
            "a.go",
            (
                "package a\n\ntype Store struct {\n x int\n}\n\n// Read reads.\nfunc (s *Store[T]) Read() {\n}\n\n"
                "const (\n A = 1\n B = 2\n)\n\nfunc main() {\n}\n"
            ),
            ["type Store", "Store.Read()", "A", "main()"],
        ),
        (
            "A.java",
            (
                "package a;\n/** Doc. */\npublic class A<T> {\n int x;\n A() {\n }\n @Override public int get() {\n"
                " return 1; }\n enum E {\n X;\n void q() {\n } }\n}\ninterface I {\n void m();\n}\n"
            ),
            ["class A", "A.A()", "A.get()", "enum E", "E.q()", "interface I"],
        ),
        (
            "a.c",
            (
                "#ifdef X\nint *f(int a) {\n}\n#endif\nstruct S {\n int a; };\ntypedef struct {\n int b; } T;\n"
                "static int x = 1;\nstatic void g(void) {\n}\n"
            ),
            ["f()", "struct S", "struct T", "x", "g()"],
        ),
        ("a.h", "struct S {\n int a;\n};\n", ["struct S"]),
        ("a.hpp", "template <typename T>\nclass A : public B<T> {\n void f() {\n }\n};\n", []),
        ("a.rs", "fn main() {\n}\n", []),
    ],
)
def test_each_language_has_its_classes_and_functions(name: str, source: str, expected: list[str]) -> None:
    document = read_document(source, name=name)
    assert [section.title for section in document.outline] == expected
    assert document.text == source


def test_offsets_are_characters_and_line_ends_are_kept() -> None:
    document = read_document("# é中😀\r\ndef f():\r\n  '😀'\r\ndef g():\r\n  1\r\n", name="a.py")
    assert [document.text[section.start :][:7] for section in document.outline] == ["# é中😀\r\n", "def g()"]


@pytest.mark.requirement("USE-9")
def test_code_with_faults_keeps_the_outline_that_can_be_read() -> None:
    source = "def good():\n    pass\n\ndef bad(:\n    pass\n\nclass Fine:\n    x = 1\n"
    assert {"good()", "class Fine"} <= {section.title for section in read_document(source, name="a.py").outline}


DEEP = "\n".join([*(" " * depth + f"class A{depth}:" for depth in range(400)), " " * 400 + "def f():", " " * 401])
NESTED = "\n".join(" " * depth + "if x:" for depth in range(800))


@pytest.mark.requirement("USE-9")
@pytest.mark.parametrize(
    "source", ["(" * 200_000, "[{(" * 60_000, NESTED, DEEP, "a'\"b(" * 4_000, "def f():\n  1\n" * 25_000]
)
def test_code_that_is_nested_too_deep_or_very_long_is_still_read(source: str) -> None:
    document = read_document(source, name="a.py")
    assert document.text == source
    assert len(document.outline) <= 20_000


def test_code_that_is_too_long_to_parse_is_read_without_an_outline_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_module, "LARGEST", 10)
    document = read_document("def f():\n  1\n", name="a.py")
    assert document.outline == ()
    assert "over 10 characters" in document.warnings[0]


@pytest.mark.requirement("USE-9")
def test_an_error_names_the_extra_if_a_grammar_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tree_sitter_go", None)
    with pytest.raises(UnreadableDocumentError, match=r"install 'memotree\[documents\]'") as caught:
        read_document("package a\n", name="a.go")
    assert caught.value.reason == "DOCUMENT_READER_MISSING"
    assert read_document("package a\n", name="a.go", media_type="text/plain").text == "package a\n"
