-- The working state: what is not committed yet and cannot be made again from Git.

create schema work;

create table work.setting (
  name  text primary key,
  value text not null
);

create table work.session (
  session_id   text collate "C" primary key,
  workspace_id text collate "C" not null,
  branch       text not null,
  base_commit  text collate "C" not null,
  agent        text not null,
  state        text not null default 'open',
  ttl          interval not null,
  created_at   timestamptz not null default now(),
  used_at      timestamptz not null default now()
);
create index session_by_use on work.session (workspace_id, used_at desc);

-- A staged change: the whole entry as it stands in the session, the blob it was derived from (null: created here) and a
-- counter that grows with every change.
create table work.staged (
  session_id   text collate "C" not null references work.session on delete cascade,
  entry_id     text collate "C" not null,
  is_archive   boolean not null,
  dead         boolean not null,
  derived_blob text collate "C",
  blob         text collate "C" not null,
  data         bytea not null,
  earlier      text[] not null default '{}', -- the blobs it had before in this session, the last fifty
  revision     bigint not null default 1,
  archive_id   text collate "C" not null,
  parent_id    text collate "C" not null,
  position     text collate "C" not null,
  type         text collate "C" not null,
  title        text not null,
  brief        text not null,
  summary      text not null,
  tags         text[] not null,
  attributes   jsonb not null,
  relations    jsonb not null,
  targets      text[] not null,
  source       jsonb,
  tokens       integer not null,
  messages     text[] not null default '{}',
  tools        text[] not null default '{}',
  primary key (session_id, entry_id)
);
create index staged_children on work.staged (session_id, parent_id, archive_id) where not dead;

-- Lines that the mirror has no more and whose points the index may still have; a row goes when those are gone.
create table work.gone_line (
  workspace_id text collate "C" not null,
  line_id      bigint not null,
  primary key (workspace_id, line_id)
);

-- Calls that may be repeated: the first result answers every later one.
create table work.request (
  workspace_id text collate "C" not null,
  request_id   text collate "C" not null,
  digest       bytea not null,
  response     bytea,
  created_at   timestamptz not null default now(),
  primary key (workspace_id, request_id)
);
create index request_by_age on work.request (created_at);

-- Views: which node stands at which level; a hidden one keeps its level for the next time it is brought in. `used` grows
-- with every use and orders what is collapsed first.
create table work.view (
  view_id      bigint generated always as identity primary key,
  workspace_id text collate "C" not null,
  scope        text collate "C" not null,
  name         text not null,
  updated_at   timestamptz not null default now(),
  unique (workspace_id, scope, name)
);

create sequence work.view_use;

create table work.view_node (
  view_id  bigint not null references work.view on delete cascade,
  entry_id text collate "C" not null,
  level    smallint not null,
  shown    boolean not null default true,
  used     bigint not null,
  primary key (view_id, entry_id)
);
