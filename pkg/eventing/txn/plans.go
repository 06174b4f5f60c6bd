package txn

// KeepPlans is a statement that makes the session plan each further statement of the
// transaction once, for all parameters, and along its indexes, whatever the statistics say.
// The session keeps statement and plan as long as it lasts; this costs a tenth of the time
// that planning each time takes. Without the settings of the planner, a plan that was made for
// an empty table would read all of a full one. It is for statements that find a few rows by
// an index, however large the table is. The settings end with the transaction.
const KeepPlans = `
SELECT set_config('plan_cache_mode', 'force_generic_plan', true),
       set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)`
