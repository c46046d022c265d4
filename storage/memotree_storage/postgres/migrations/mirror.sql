-- The mirror of the tree: everything here can be dropped and made again from Git.
--
-- A line is a first-parent chain of commits. A commit extends its first parent's line when that parent is the tip, else
-- it opens a new line forked there; so (line, seq) names one commit for ever. Branches and tags only name commits.
-- Line ids are random: a line of an earlier build never means a line of this one, in the index either.

create schema mirror;

create table mirror.workspace (
  workspace_id   text collate "C" primary key,
  name           text collate "C" not null unique,
  description    text not null default '',
  default_branch text not null default 'main',
  created_at     timestamptz not null,
  -- With the rows of mirror.ref, the watermark: how many rows there are. It moves in the transaction that moves them.
  commit_count   bigint not null default 0,
  version_count  bigint not null default 0,
  placement_count bigint not null default 0,
  line_count     bigint not null default 0, -- lines ever opened; the number of the last one
  erasures       text collate "C" not null default '' -- the commit of the record of erasures that mirror.rewritten has
);

-- The commits that erasures have rewritten: the present id by each id that it had.
create table mirror.rewritten (
  workspace_id text collate "C" not null references mirror.workspace on delete cascade,
  old_commit   text collate "C" not null,
  new_commit   text collate "C" not null,
  primary key (workspace_id, old_commit)
);

create table mirror.line (
  line_id      bigint primary key,
  workspace_id text collate "C" not null references mirror.workspace on delete cascade,
  parent_line  bigint references mirror.line on delete cascade,
  fork_seq     bigint,
  tip_seq      bigint not null,
  number       bigint not null, -- counted from 1 in the workspace: names the line where its id would be too big
  branch       text collate "C" not null -- the branch whose commits extend it
);
create index line_by_workspace on mirror.line (workspace_id);
create index line_by_parent on mirror.line (parent_line);

create table mirror.commit (
  workspace_id text collate "C" not null references mirror.workspace on delete cascade,
  commit_id    text collate "C" not null,
  line_id      bigint not null references mirror.line on delete cascade,
  seq          bigint not null,
  parents      text[] not null,
  author_name  text not null,
  author_email text not null,
  authored_at  timestamptz not null,
  committed_at timestamptz not null,
  message      text not null,
  session_id   text collate "C",
  request_id   text collate "C",
  primary key (workspace_id, commit_id),
  unique (line_id, seq)
);
-- The merge commits of a line, each of which has further commits behind it.
create index commit_merges on mirror.commit (line_id, seq) where cardinality(parents) > 1;
create index commit_by_request on mirror.commit (workspace_id, request_id) where request_id is not null;

create table mirror.ref (
  workspace_id text collate "C" not null references mirror.workspace on delete cascade,
  name         text collate "C" not null,
  object_id    text collate "C" not null,
  commit_id    text collate "C" not null,
  primary key (workspace_id, name)
);
create index ref_by_commit on mirror.ref (workspace_id, commit_id);

-- One row per version of an entry on a line: alive from from_seq until before to_seq. The newest row of an entry at or
-- before a seq is its version there; a dead one says that it is not alive.
create table mirror.version (
  version_id  bigint generated always as identity primary key,
  line_id     bigint not null references mirror.line on delete cascade,
  entry_id    text collate "C" not null,
  from_seq    bigint not null,
  to_seq      bigint,
  is_archive  boolean not null,
  dead        boolean not null,
  blob        text collate "C" not null,
  archive_id  text collate "C" not null,
  parent_id   text collate "C" not null,
  position    text collate "C" not null,
  type        text collate "C" not null,
  title       text not null,
  brief       text not null,
  summary     text not null,
  tags        text[] not null,
  attributes  jsonb not null,
  relations   jsonb not null,
  targets     text[] not null,
  source      jsonb,
  tokens      integer not null,
  unique (line_id, entry_id, from_seq)
);
create unique index version_open on mirror.version (line_id, entry_id) where to_seq is null;

-- Every row satisfies the conditions of the next two indexes; only a statement that says them uses the index. Otherwise
-- the planner took them for lookups of one entry where most lines have few rows, and read a long line whole.
create index version_of_commit on mirror.version (line_id, from_seq) where from_seq > 0;
-- Finds nodes by title. Only its beginning is indexed, since an index entry has a limit; a title can be longer.
create index version_titles on mirror.version (line_id, (left(title, 100)) collate "C") where title >= '';

create index version_archives on mirror.version (line_id, title collate "C", entry_id) where is_archive;
create index version_targets on mirror.version using gin (targets) where targets <> '{}';
create index version_by_archive on mirror.version (archive_id, line_id);
-- The archive of an ingested document, or its node in a joined archive. Anybody can write the attribute, at any length.
create index version_documents on mirror.version (line_id, (left(attributes ->> 'document_id', 100)) collate "C")
 where attributes ? 'document_id' and (is_archive or attributes ? 'sha256');
create index version_supersedes on mirror.version (line_id, archive_id) where relations @> '[["SUPERSEDES"]]';

-- The versions that a line forked off hides from its seq from_seq on, since it has a version of the same node. Written
-- with that version; the index leaves them out of searches on that line.
create table mirror.overridden (
  version_id bigint not null references mirror.version on delete cascade,
  by_line    bigint not null references mirror.line on delete cascade,
  from_seq   bigint not null,
  primary key (version_id, by_line)
);
create index overridden_by_line on mirror.overridden (by_line);

-- The indexes that have to hear of every change, by number: the one that answers, and one that is being made beside it
-- for another embedding model. A number is never used again. Terms are counted once, by the rows of the index that
-- answers. Which model each belongs to is written in the working state; a start writes these rows anew from there.
create table mirror.fed_index (
  number  integer primary key,
  answers boolean not null
);
insert into mirror.fed_index values (1, true);

-- What a search inside documents needs of each version with a content of its own: the terms of the content (ascending
-- 32-bit ids and how often each stands there, both little-endian) and its vector (32-bit floats) by the embedding model
-- of an index. Written by the indexer when the version's point is; never compressed, since a search reads many at once.
create table mirror.passage (
  version_id   bigint not null references mirror.version on delete cascade,
  index_number integer not null,
  tokens       integer not null,
  length       integer not null,
  terms        bytea not null,
  counts       bytea not null,
  vector       bytea not null,
  checksum     bigint not null, -- CRC-32 of the others, without the index; a row with another one counts as missing
  primary key (version_id, index_number)
) with (toast_tuple_target = 8160);
alter table mirror.passage alter column terms set storage external;
alter table mirror.passage alter column counts set storage external;
alter table mirror.passage alter column vector set storage external;

-- Placement has its own intervals: a node of many versions and few moves has few rows here. What a node stands directly
-- below is its home: its parent, or the archive when it is a root. A node that stands nowhere, since git merged its
-- parent away, is placed where it is shown; `fault` says why, and `file_home` what its file names (misplaced.py).
create table mirror.placement (
  line_id    bigint not null references mirror.line on delete cascade,
  entry_id   text collate "C" not null,
  from_seq   bigint not null,
  to_seq     bigint,
  dead       boolean not null,
  archive_id text collate "C" not null,
  parent_id  text collate "C" not null,
  position   text collate "C" not null,
  fault      text collate "C",
  file_home  text collate "C",
  home       text collate "C" not null generated always as (case parent_id when '' then archive_id else parent_id end) stored,
  primary key (line_id, entry_id, from_seq)
);
create unique index placement_open on mirror.placement (line_id, entry_id) where to_seq is null;
create index placement_children on mirror.placement (line_id, home, position, entry_id) where not dead;
create index placement_faults on mirror.placement (line_id) where fault is not null;
-- Most homes have few children, also where statistics see little but the roots of a flat archive: a plan that expects
-- a hundred thousand children of each node reads the whole table for each.
alter table mirror.placement alter column home set (n_distinct = -0.1);

-- Files that people or tools committed and that cannot be read as entries.
create table mirror.fault (
  workspace_id text collate "C" not null,
  commit_id    text collate "C" not null,
  path         text not null,
  description  text not null,
  primary key (workspace_id, commit_id, path),
  foreign key (workspace_id, commit_id) references mirror.commit on delete cascade
);

-- How many indexed versions of the workspace hold a term; kept by the indexer with the points themselves.
create table mirror.term (
  workspace_id text collate "C" not null references mirror.workspace on delete cascade,
  term         bigint not null,
  documents    integer not null,
  primary key (workspace_id, term)
);

-- What an index does not reflect yet: a version that is new, or (`changed`) one that has ended or is overridden. A row
-- goes only after the index has flushed what it asked for.
create table mirror.outbox (
  outbox_id    bigint generated always as identity primary key,
  index_number integer not null,
  workspace_id text collate "C" not null references mirror.workspace on delete cascade,
  version_id   bigint not null references mirror.version on delete cascade,
  changed      boolean not null,
  applied      boolean not null default false,
  counted      boolean not null default false
);
create index outbox_pending on mirror.outbox (workspace_id, index_number, outbox_id) where not applied;
-- For the rows that go with their version: without it each version that is removed reads the whole outbox.
create index outbox_by_version on mirror.outbox (version_id);

-- The lineage of a commit: its line up to it, the parent line up to the fork, and so on; depth 0 is the nearest.
-- `rows` stands for few: by its own estimate (of a recursion) every statement would join whole tables with it.
create function mirror.lineage(p_workspace text, p_commit text)
returns table (depth integer, line_id bigint, seq bigint, number bigint)
language sql stable parallel safe rows 3 as $$
  with recursive chain as (
    select 0 as depth, c.line_id, c.seq, l.number, l.parent_line, l.fork_seq
      from mirror.commit c join mirror.line l on l.line_id = c.line_id
     where c.workspace_id = p_workspace and c.commit_id = p_commit
    union all
    select chain.depth + 1, l.line_id, chain.fork_seq, l.number, l.parent_line, l.fork_seq
      from chain join mirror.line l on l.line_id = chain.parent_line
  )
  select chain.depth, chain.line_id, chain.seq, chain.number from chain
$$;
