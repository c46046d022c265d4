-- Why a staged change does not fit the session's base, after a commit of other changes: arrays of field, base, ours, theirs
-- and a sentence. Empty again when the change is edited or rebased.

alter table work.staged add column conflicts jsonb not null default '[]';
