-- What models answered, so that no text is paid for twice. The key is a hash of the kind of answer, the model, the
-- version of the prompt and the text; the value is what the asker made of the answer.

create table work.model_answer (
  key bytea primary key,
  kind text not null,
  model text not null,
  value bytea not null,
  created_at timestamptz not null default now(),
  used_at timestamptz not null default now()
);
alter table work.model_answer alter column value set storage external; -- vectors do not get smaller
create index model_answer_used on work.model_answer (used_at);
