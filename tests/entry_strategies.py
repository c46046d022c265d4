"""Hypothesis strategies for valid nodes and archives, shared by the property tests."""

from hypothesis import strategies as st
from memotree_storage.model.node import (
    ID_ALPHABET,
    ID_LENGTH,
    NODE_TYPES,
    RELATION_TYPES,
    Archive,
    Node,
    Relation,
    Source,
)
from memotree_storage.model.position import many_between
from memotree_storage.model.validation import InvalidTextError, canonical_node, check_text

# Texts that YAML, Git or a careless parser could mistake for something else, one per line.
_AWKWARD_LINES = r"""
yes
No
ON
null
~
true
n
Y
-
?
:
=
<<
---
...
%YAML
!
&a
*a
12
1_000
0x1F
0o7
0b1
1e5
12e4567890123456
1.5
.5
.inf
.NaN
-1
+1
1:30
2024-01-01
2024-01-01 10:00:00Z
2024 plan
3 ways
a: b
a:
a #b
#a
a#b
a:b
[a]
{a}
'a'
"a"
a'b
a"b
a\b
\
| x
> x
@a
`a`
, a
- a
? a
a  b
//
$a
(a)
a, b
key: [
nodes/ab
""".strip("\n")

AWKWARD = [
    *_AWKWARD_LINES.split("\n"),
    *(" a", "a ", "\u00a0a", "a\u00a0", "\u3000a", "\ufeffa", "a\ufeff", "\ufffea", "\u2060", "\ue000"),
    *("\U0001f600", "\U0001f468\u200d\U0001f469", "\u202eabc\u202c", "\u200f\u05e9\u05dc\u05d5\u05dd", "e\u0301"),
    *("\u4e2d\u6587\uff1a\u6807\u9898", "\uff46\uff55\uff4c\uff4c", "\U000e0001", "\U0010ffff"),
]

_NOT_IN_LINE = st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"])
_ANY = st.characters(exclude_categories=["Cs"])


def _allowed(character: str) -> bool:
    return character in "\t\n\r" or not (ord(character) < 0x20 or 0x7F <= ord(character) <= 0x9F)


def _is_title(text: str) -> bool:
    """Whether a text may name a node or an archive: it must have a visible character."""
    try:
        check_text("title", text, required=True)
    except InvalidTextError:
        return False
    return True


ids = st.one_of(
    st.text(ID_ALPHABET, min_size=ID_LENGTH, max_size=ID_LENGTH),
    st.sampled_from(
        ["1234567890123456", "12e4567890123456", "0x12345678901234", "0b10101010101010", "0000000000000000"]
    ),
)
lines = st.one_of(st.sampled_from(AWKWARD), st.text(_NOT_IN_LINE, max_size=40))
titles = lines.filter(_is_title)
texts = st.one_of(
    lines,
    st.lists(st.sampled_from([*AWKWARD, "", "\n", "\r\n", "---", "\t", "---\n", "\u2028"]), max_size=6).map("\n".join),
    st.text(_ANY.filter(_allowed), max_size=60),
)
tags = st.lists(titles.map(str.strip).filter(lambda tag: tag and "," not in tag), max_size=4)
keys = st.from_regex(r"[A-Za-z0-9_é中][A-Za-z0-9_.\-:/é中]{0,12}", fullmatch=True)
positions = st.integers(1, 200).map(lambda count: many_between(None, None, count)[-1])


@st.composite
def relations(draw: st.DrawFn) -> Relation:
    return Relation(draw(st.sampled_from(sorted(RELATION_TYPES))), draw(ids), draw(lines))


@st.composite
def sources(draw: st.DrawFn) -> Source:
    start = draw(st.integers(0, 2**40))
    return Source(
        document_id=draw(titles),
        start=start,
        end=start + draw(st.integers(0, 2**40)),
        page=draw(st.integers(0, 5000)),
        heading=draw(lines),
        sha256=draw(st.sampled_from(["", "0" * 64, "0123456789abcdef" * 4])),
    )


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """Any valid node."""
    node_id = draw(ids)
    other = ids.filter(lambda entry_id: entry_id != node_id)
    return canonical_node(
        Node(
            id=node_id,
            archive_id=draw(ids),
            parent_id=draw(st.none() | other),
            position=draw(positions),
            type=draw(st.sampled_from(sorted(NODE_TYPES))),
            title=draw(titles),
            brief=draw(lines),
            summary=draw(texts),
            content=draw(texts),
            tags=tuple(draw(tags)),
            relations=tuple(
                relation for relation in draw(st.lists(relations(), max_size=3)) if relation.target_id != node_id
            ),
            attributes=draw(st.dictionaries(keys, texts, max_size=3)),
            source=draw(st.none() | sources()),
        )
    )


@st.composite
def archives(draw: st.DrawFn) -> Archive:
    """Any valid archive."""
    return Archive(
        id=draw(ids),
        name=draw(titles),
        model_id=draw(lines),
        description=draw(texts),
        attributes=draw(st.dictionaries(keys, texts, max_size=3)),
    )


entries = st.one_of(nodes(), archives())
