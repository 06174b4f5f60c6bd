package txn

// KeepPlans is a statement for transactions whose further statements find a few rows by an index,
// however large the table is. It makes the session plan each of them once, for all parameters,
// and along its indexes, whatever the statistics say. The session keeps statement and plan as
// long as it lasts, which costs a tenth of the time of planning each time. Without the settings
// of the planner, a plan that was made for an empty table would read all of a full one. The
// settings end with the transaction.
const KeepPlans = `
SELECT set_config('plan_cache_mode', 'force_generic_plan', true),
       set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)`
