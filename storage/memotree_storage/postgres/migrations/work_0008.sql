-- Closed sessions stay; those that are not closed are found without them. The order is that of a page of sessions.

create index session_unclosed on work.session (workspace_id, used_at desc, session_id desc)
 where state in ('open', 'detached');
drop index work.session_by_use;
create index session_by_use on work.session (workspace_id, used_at desc, session_id desc);

-- As for mirror.placement: with one archive's roots alone staged, the planner expected of every node as many children,
-- millions in a recursion, and making room for those took 15 ms for each GetTree of anybody.
alter table work.staged alter column home set (n_distinct = -1);
