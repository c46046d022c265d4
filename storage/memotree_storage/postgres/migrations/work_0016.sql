-- Records of one method or of one tool are found without reading all others.

set local statement_timeout = 0; -- the log may be large

create index audit_by_method on work.audit (method, number);
create index audit_by_tool on work.audit (tool, number) where tool <> '';
