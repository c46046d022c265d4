-- A job counts the crashes of the processes that ran it.

alter table work.job rename column deaths to crashes;
