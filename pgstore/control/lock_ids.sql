-- Locks the tables whose ids are reserved, so that no other session draws ids. Locks: SHARE ROW EXCLUSIVE on them until the commit that
-- follows at once. Needs no index.
lock table {control}.dead_letters, {control}.commands in share row exclusive mode
