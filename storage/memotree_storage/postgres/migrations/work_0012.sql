-- Who may call: principals, their API keys, and their roles in workspaces. Sessions, jobs and views get an owner; those
-- that were made without authentication have none.

create table work.principal (
  name       text collate "C" primary key,
  email      text not null default '',
  created_at timestamptz not null default now()
);

create table work.api_key (
  key_id     text collate "C" primary key,
  principal  text collate "C" not null references work.principal on delete cascade,
  digest     bytea not null unique, -- SHA-256 of the key, which is kept nowhere
  label      text not null default '',
  created_at timestamptz not null default now(),
  expires_at timestamptz,
  used_at    timestamptz
);
create index api_key_principal on work.api_key (principal);

create table work.access_grant (
  principal    text collate "C" not null references work.principal on delete cascade,
  workspace_id text collate "C" not null, -- '*': all workspaces
  branches     text collate "C" not null, -- a name, or the beginning of names and '*'
  role         text collate "C" not null,
  created_at   timestamptz not null default now(),
  primary key (principal, workspace_id, branches)
);
create index access_grant_workspace on work.access_grant (workspace_id);

alter table work.session add column principal text collate "C" not null default '';
alter table work.job add column principal text collate "C" not null default '';
alter table work.view add column principal text collate "C" not null default '';
alter table work.view drop constraint view_workspace_id_scope_name_key;
alter table work.view add unique (workspace_id, scope, principal, name);
create index job_principal on work.job (principal);
