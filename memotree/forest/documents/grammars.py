"""What counts as a class or a function in the grammars of tree-sitter, by programming language."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Grammar:
    """The parts of a grammar that make an outline. The names are those of its kinds of nodes.

    Attributes:
        module: The Python package that holds the grammar.
        entry: The function of that package that returns it.
        types: Definitions with members: the word before the name in a title, such as ``class``.
        functions: Definitions whose title ends with ``()``.
        through: Nodes that are looked into for definitions, such as an ``export`` or an ``#ifdef``.
        values: Functions and classes as values, which are named by the variable that holds them.
        strict: Whether a text that the grammar does not fit entirely gets no outline.
    """

    module: str
    entry: str
    types: Mapping[str, str]
    functions: frozenset[str]
    through: frozenset[str]
    values: frozenset[str] = frozenset()
    strict: bool = False


_JS_TYPES: Final = {"class_declaration": "class", "class": "class"}
_JS_FUNCTIONS: Final = frozenset({"function_declaration", "generator_function_declaration", "method_definition"})
_JS_THROUGH: Final = frozenset(
    {
        "export_statement",
        "lexical_declaration",
        "variable_declaration",
        "variable_declarator",
        "expression_statement",
        "assignment_expression",
        "field_definition",
        "public_field_definition",
    }
)
_JS_VALUES: Final = frozenset({"arrow_function", "function_expression", "generator_function", "class"})
_TS_TYPES: Final = {
    **_JS_TYPES,
    "abstract_class_declaration": "class",
    "interface_declaration": "interface",
    "enum_declaration": "enum",
    "internal_module": "namespace",
    "module": "module",
    "type_alias_declaration": "type",
}
_C_TYPES: Final = {"struct_specifier": "struct", "union_specifier": "union", "enum_specifier": "enum"}
_C_THROUGH: Final = frozenset(
    {
        "preproc_ifdef",
        "preproc_if",
        "preproc_else",
        "preproc_elif",
        "linkage_specification",
        "declaration_list",
        "type_definition",
    }
)
_C_FUNCTIONS: Final = frozenset({"function_definition"})

GRAMMARS: Final[Mapping[str, tuple[Grammar, ...]]] = {
    "python": (
        Grammar(
            "tree_sitter_python",
            "language",
            {"class_definition": "class"},
            frozenset({"function_definition"}),
            frozenset({"decorated_definition", "if_statement", "else_clause", "try_statement", "block"}),
        ),
    ),
    "js": (Grammar("tree_sitter_javascript", "language", _JS_TYPES, _JS_FUNCTIONS, _JS_THROUGH, _JS_VALUES),),
    "ts": (
        Grammar(
            "tree_sitter_typescript",
            "language_typescript",
            _TS_TYPES,
            _JS_FUNCTIONS,
            _JS_THROUGH | {"ambient_declaration"},
            _JS_VALUES,
        ),
        Grammar(
            "tree_sitter_typescript",
            "language_tsx",
            _TS_TYPES,
            _JS_FUNCTIONS,
            _JS_THROUGH | {"ambient_declaration"},
            _JS_VALUES,
        ),
    ),
    "go": (
        Grammar(
            "tree_sitter_go",
            "language",
            {"type_spec": "type"},
            frozenset({"function_declaration", "method_declaration"}),
            frozenset({"type_declaration"}),
        ),
    ),
    "java": (
        Grammar(
            "tree_sitter_java",
            "language",
            {
                "class_declaration": "class",
                "interface_declaration": "interface",
                "enum_declaration": "enum",
                "record_declaration": "record",
                "annotation_type_declaration": "@interface",
            },
            frozenset({"method_declaration", "constructor_declaration", "compact_constructor_declaration"}),
            frozenset({"enum_body_declarations"}),
        ),
    ),
    "c": (Grammar("tree_sitter_c", "language", _C_TYPES, _C_FUNCTIONS, _C_THROUGH),),
    # A header may be C or C++, and its name does not tell. One that the grammar of C does not fit keeps no outline.
    "cpp": (Grammar("tree_sitter_c", "language", _C_TYPES, _C_FUNCTIONS, _C_THROUGH, strict=True),),
}
"""The grammars of each language, by its name in `Document.language`; the first one that fits without a fault counts."""
