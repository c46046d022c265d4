-- Whether a staged change of the session has conflicts (work.staged.conflicts): then each edit of it looks for them again.

alter table work.session add column has_conflicts boolean not null default false;
update work.session s set has_conflicts = exists (
  select from work.staged r where r.session_id = s.session_id and r.conflicts <> '[]');
