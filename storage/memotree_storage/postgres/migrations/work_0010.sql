-- The conflicts of a session that are not resolved, each in a row of its own, and the merge that it will commit.
--
-- "number" orders the conflicts of an entry. "sides" is an array: the values at the base, of ours and of theirs. The blobs
-- are those of the whole entry at the base and on their side; '' if it is not there. "of_branch" says that their side is
-- the branch, and not something that was brought into the session.
-- "brings" says that a merge, pick or restore was staged; "merged" is the second parent of the commit; "files" are files of
-- their side that are no entries, by path: an array of the blobs before and after; null if there is none.

create table work.conflict (
  session_id  text collate "C" not null references work.session on delete cascade,
  entry_id    text collate "C" not null,
  number      int not null,
  kind        text not null,
  field       text not null,
  sides       jsonb not null,
  description text not null,
  base_blob   text not null default '',
  their_blob  text not null default '',
  of_branch   boolean not null default false,
  primary key (session_id, entry_id, number)
);
alter table work.staged drop column conflicts; -- they are found again by the commit or rebase that meets them
update work.session set has_conflicts = false where has_conflicts;
alter table work.session add column brings boolean not null default false;
alter table work.session add column merged text;
alter table work.session add column files jsonb not null default '{}';
