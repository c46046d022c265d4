-- The audit log: a row for each call that changed something or was refused, and for each call of a tool. Rows are only
-- added, and deleted when they are old. The record is in the server's journal before the call is answered, and comes
-- here from there, perhaps twice; `record_id` tells.

create table work.audit (
  number      bigint generated always as identity primary key,
  record_id   text collate "C" not null unique,
  happened_at timestamptz not null,
  principal   text collate "C" not null,
  interface   text collate "C" not null,
  call_id     text collate "C" not null,
  request_id  text not null,
  method      text collate "C" not null,
  tool        text collate "C" not null,
  workspace   text collate "C" not null, -- its id, or what the caller named if there is none of that name
  arguments   jsonb not null,
  code        text collate "C" not null,
  reason      text collate "C" not null,
  elapsed_ms  double precision not null
);
create index audit_by_time on work.audit (happened_at);
create index audit_by_principal on work.audit (principal, number);
create index audit_by_workspace on work.audit (workspace, number);
create index audit_by_failure on work.audit (code, number) where code <> 'OK';
