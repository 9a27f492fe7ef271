-- Inserts commands. $1 to $16 are the columns of transfer.Commands. {projection_ids}, {dead_letter_ids} and
-- {command_ids} are added to the ids of the source. Indexes: those of commands. Locks: the new rows, and their
-- projections FOR KEY SHARE.
insert into {control}.commands
    (projection_id, id, root, kind, dead_letter_ids, stream_id, type, error, max_events, current_stream, after_position, done, failed,
     current_dead_letter, created_at, ended_at)
overriding system value
select r.projection + {projection_ids}, r.id + {command_ids}, r.root + {command_ids}, r.kind,
       case when r.dead_letter_ids is not null then
           array(select x.v::bigint + {dead_letter_ids} from jsonb_array_elements_text(r.dead_letter_ids::jsonb) with ordinality as x (v, n) order by x.n)
       end,
       r.stream_id, r.type, r.error, r.max_events, r.current_stream, r.after_position, r.done, r.failed, r.current_dead_letter + {dead_letter_ids},
       timestamptz 'epoch' + r.created_at * interval '1 microsecond', timestamptz 'epoch' + r.ended_at * interval '1 microsecond'
  from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::bigint[], $10::text[],
              $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[], $16::bigint[])
    as r (projection, id, root, kind, dead_letter_ids, stream_id, type, error, max_events, current_stream, after_position, done, failed,
          current_dead_letter, created_at, ended_at)
