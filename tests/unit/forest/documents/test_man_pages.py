"""Man pages become text by section, without the macros they are written with."""

import gzip

import pytest
from steps import LINEAR, growth

from memotree.forest.documents import Document, UnreadableDocumentError, packed, read_document

MAN = r"""'\" t
.\" A comment.
.ie \n(.g .ds Aq \(aq
.el       .ds Aq '
.de Vx
.nf
hidden
..
.TH "CP" "1" "September 2022" "GNU coreutils 9.1" "User Commands"
.SH NAME
cp \- copy files
and directories
.SH SYNOPSIS
.B cp
[\fI\,OPTION\/\fR]... \fI\,SOURCE DEST\/\fR
.br
.BR cp " [" \-t "] it\*(Aqs"
.SH
DESCRIPTION
.PP
Copies
.I files
and \fBfolders\fP\c
\&.
.TP
\fB\-a\fR, \fB\-\-archive\fR
same as \fB\-dR\fR
.TP
.B \-b
back up
.IP \(bu 2
one
.ie n \{\
\h'-04'\(bu\h'+03'\c
.\}
.el \{\
hidden
.\}
two
.nf
  kept   as
  it is
.fi
.if t hidden
.SS "Sub section"
.so man1/ls.1
.TS
tab(:);
l l.
Name:Use
a:first
.TE
"""

MDOC = r""".Dd $Mdocdate: September 4 2022 $
.Dt SSH-ADD 1
.Os
.Sh NAME
.Nm ssh-add
.Nd adds keys
.Sh SYNOPSIS
.Nm
.Op Fl cD
.Op Fl E Ar hash
.Ar
.Sh DESCRIPTION
.Nm
adds keys to
.Xr ssh-agent 1 .
.Pp
The options are:
.Bl -tag -width Ds
.It Fl c
Asks first
.Pq see Fl D Ns s .
.El
.Bl -bullet -compact
.It
one
.It
two
.El
"""


pytestmark = pytest.mark.requirement("USE-9")


def gzipped(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def parts(document: Document) -> list[tuple[int, str, str]]:
    return [
        (section.level, section.title, document.text[section.start : document.own_end(index)])
        for index, section in enumerate(document.outline)
    ]


@pytest.mark.requirement("FOREST-3")
def test_a_page_of_man_or_mdoc_is_divided_by_its_sections() -> None:
    document = read_document(MAN, name="cp.1")
    assert (document.media_type, document.title) == ("text/troff", "cp(1)")
    copying = "Copies files and folders.\n\n-a, --archive\nsame as -dR\n\n-b\nback up\n\n- one • two"
    assert parts(document) == [
        (1, "cp(1)", "CP(1) User Commands\n\n"),
        (2, "NAME", "NAME\ncp - copy files and directories\n\n"),
        (2, "SYNOPSIS", "SYNOPSIS\ncp [OPTION]... SOURCE DEST\ncp [-t] it's\n\n"),
        (2, "DESCRIPTION", f"DESCRIPTION\n\n{copying}\n  kept   as\n  it is\n\n"),
        (3, "Sub section", "Sub section\nSee ls.1.\n\nName\tUse\na\tfirst\n"),
    ]
    document = read_document(MDOC, name="ssh-add.1")
    assert document.title == "ssh-add(1)"
    adding = "ssh-add adds keys to ssh-agent(1).\n\nThe options are:\n\n-c\nAsks first (see -Ds)."
    assert parts(document) == [
        (1, "ssh-add(1)", "SSH-ADD(1)\n\n"),
        (2, "NAME", "NAME\nssh-add - adds keys\n\n"),
        (2, "SYNOPSIS", "SYNOPSIS\nssh-add [-cD] [-E hash] file ...\n\n"),
        (2, "DESCRIPTION", f"DESCRIPTION\n{adding}\n\n- one\n- two\n"),
    ]


@pytest.mark.parametrize(
    ("data", "how", "expected"),
    [
        (gzipped(MAN.encode()), {"name": "man1/cp.1.gz"}, "text/troff"),
        (gzipped(b"# Title\n\nwords"), {"name": "a.md.gz"}, "text/markdown"),
        (gzipped(b"# Title\n\nwords"), {"media_type": "application/gzip"}, "text/markdown"),
        (MAN.encode(), {}, "text/troff"),
        (b".TH LS 1\n.SH NAME\nls\n", {"media_type": "text/troff"}, "text/troff"),
        (b"...and so on\n", {"name": "notes.1"}, "text/plain"),
        (b"words about .TH\n", {"name": "notes.1"}, "text/plain"),
        (b".gitignore names files\n", {}, "text/plain"),
    ],
)
def test_a_man_page_is_recognised_also_if_it_is_packed(data: bytes, how: dict[str, str], expected: str) -> None:
    assert read_document(data, **how).media_type == expected


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (gzipped(b"words")[:-4], "DAMAGED_ARCHIVE"),
        (gzipped(b"words")[:8] + b"\xff" * 20, "DAMAGED_ARCHIVE"),
        (gzipped(b""), "EMPTY_DOCUMENT"),
        (gzipped(b"a" * (1 << 20) + b"a"), "UNPACKED_TOO_LARGE"),
    ],
)
def test_a_packed_file_that_is_damaged_or_grows_over_the_limit_is_refused(
    data: bytes, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed, "MOST_UNPACKED", 1 << 20)
    with pytest.raises(UnreadableDocumentError) as caught:
        read_document(data, name="a.1.gz")
    assert caught.value.reason == reason
    assert reason != "UNPACKED_TOO_LARGE" or "has over 1 MiB" in caught.value.message


@pytest.mark.parametrize(
    "body",
    [
        ".de XX\n.XX\n..\n.XX\nwords\n",  # a macro that calls itself
        ".while 1 .XX\nwords\n",
        ".while n \\{\n.br\n.\\}\nwords\n",
        ".ds a \\*a\\*a\n.ds b \\*a\\*a\\*b\nwords \\*b\n",  # a string of itself
        ".so loop.1\nwords\n",
        ".if n .if n .if n .if n " * 200 + "\nwords\n",
        ".ie n \\{\\\n" * 5000 + "words\n",
        ".de XX\n",  # a definition without an end
        "\\" * 9999 + "\n" + '.B "' * 999 + "\nwords\n",
        "\\[" * 9999 + "\n\\*[" * 999 + "\nwords\n",
    ],
)
def test_macros_that_would_loop_do_not(body: str) -> None:
    document = read_document(f".TH LOOP 1\n.SH NAME\nloop \\- goes on\n{body}", name="loop.1")
    assert "loop - goes on" in document.text
    assert len(document.text) < 200_000


@pytest.mark.parametrize(
    ("begin", "unit"),
    [
        (".TH A 1\n", ".ie n \\{\\\n"),
        (".TH A 1\n", ".TP\n\\fB\\-a\\fR\nwords\n"),
        (".TH A 1\nwords ", "\\["),
        (".TH A 1\n.B ", '"'),
        (".TH A 1\n.B ", "\\"),
        (".Dd A\n.Dt A 1\n.Op ", "Op "),
    ],
)
def test_reading_a_man_page_takes_steps_in_proportion_to_its_length(begin: str, unit: str) -> None:
    assert growth(lambda count: read_document(begin + unit * count, media_type="text/troff"), 500) < LINEAR
