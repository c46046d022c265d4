-- What a staged node stands directly below, and the order of the nodes there.

alter table work.staged add column home text collate "C" not null
  generated always as (case parent_id when '' then archive_id else parent_id end) stored;
drop index work.staged_children;
create index staged_children on work.staged (session_id, home, position, entry_id) where not dead and not is_archive;
