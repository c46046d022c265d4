-- Jobs: long work that survives a restart. `number` is the order of creation, in which the jobs of one lane run; `owner`
-- is the process that runs it; `deaths` counts how often in a row a process ended while it ran.

create table work.job (
  job_id       text collate "C" primary key,
  number       bigint generated always as identity unique,
  workspace_id text collate "C" not null,
  kind         text collate "C" not null,
  subject      text not null,
  lane         text collate "C" not null, -- empty: none
  state        text collate "C" not null default 'queued',
  cancelling   boolean not null default false,
  owner        text collate "C" not null default '',
  step         text not null default '',
  done         bigint not null default 0,
  total        bigint not null default 0,
  reason       text collate "C" not null default '',
  message      text not null default '',
  attempts     integer not null default 0,
  deaths       integer not null default 0,
  request      bytea not null,
  result_type  text collate "C" not null default '',
  result       bytea not null default '',
  usage        jsonb not null default '[]',
  created_at   timestamptz not null default now(),
  updated_at   timestamptz not null default now()
);
create index job_of_workspace on work.job (workspace_id, number desc);
create index job_waiting on work.job (number) where state in ('queued', 'running');
create index job_in_lane on work.job (lane, number) where state in ('queued', 'running');

-- What a job was given to work on, and what it notes down for the next time that it is begun.
create table work.job_input (
  job_id text collate "C" not null references work.job on delete cascade,
  name   text collate "C" not null,
  data   bytea not null,
  primary key (job_id, name)
);
alter table work.job_input alter column data set storage external; -- to compress a document takes longer than to write it

create table work.job_note (
  job_id text collate "C" not null references work.job on delete cascade,
  name   text collate "C" not null,
  data   bytea not null,
  primary key (job_id, name)
);
