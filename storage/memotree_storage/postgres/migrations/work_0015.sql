-- Conversations of queries: the questions of a principal and the answers that it got. They are no part of the versioned
-- store, since whoever may read a workspace reads all of that.

create table work.conversation (
  conversation_key bigint generated always as identity primary key,
  workspace_id     text collate "C" not null,
  principal        text collate "C" not null,
  name             text collate "C" not null,
  used_at          timestamptz not null default now(),
  unique (workspace_id, principal, name)
);
create index conversation_by_use on work.conversation (used_at);
create index conversation_by_principal on work.conversation (principal, used_at);

create table work.conversation_turn (
  conversation_key bigint not null references work.conversation on delete cascade,
  number           bigint generated always as identity,
  question         text not null,
  answer           text not null,
  primary key (conversation_key, number)
);
