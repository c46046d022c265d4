-- Whether the branch of a session was moved back or aside by a push, so that its base commit is no longer on it.

alter table work.session add column rewound boolean not null default false;
