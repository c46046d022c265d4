-- Why a session is closed, if its state does not say it.

alter table work.session add column why_closed text not null default '';
