-- The tools that a role is limited to: names, and beginnings of names with '*'; none for a role that holds for all calls.

alter table work.access_grant add column tools text[] not null default '{}';
